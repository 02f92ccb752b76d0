// Groups the keys of a run into sections.

import type { KeyRow } from "../../data";

export interface Group {
  name: string;
  keys: KeyRow[];
  /** Keys that stepscope measures itself come last and are collapsed. */
  isOwn: boolean;
}

const OWN = new Set([
  "phase",
  "device",
  "lag",
  "ranks",
  "batch",
  "memory",
  "gradients",
  "updates",
  "activations",
  "attention",
  "gc",
  "cpu",
  "compile",
]);
const TRAINING = "training";
/** Layer 2 comes before layer 10. */
const order = new Intl.Collator(undefined, { numeric: true });

/** Groups by prefix: keys without one first, then by name, then what stepscope measures itself. */
export function groupsOf(keys: KeyRow[], filter: string): Group[] {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  // Before the filter: a chart stays in its group while others are filtered out.
  const joined = joinedGroups(keys);
  const groups = new Map<string, KeyRow[]>();
  for (const info of keys) {
    const where = info.key.toLowerCase();
    if (!words.every((word) => where.includes(word))) continue;
    let name = info.group;
    while (joined.has(name)) name = joined.get(name)!;
    name ||= TRAINING;
    const members = groups.get(name);
    if (members) members.push(info);
    else groups.set(name, [info]);
  }
  const sections = [...groups].map(([name, members]) => ({
    name,
    keys: members.sort((a, b) => order.compare(a.key, b.key)),
    isOwn: isOwn(name),
  }));
  const rank = (group: Group): number => (group.name === TRAINING ? 0 : group.isOwn ? 2 : 1);
  return sections.sort((a, b) => rank(a) - rank(b) || order.compare(a.name, b.name));
}

/** Groups with a single chart, and the group each is joined into: a single chart would leave a row empty. */
function joinedGroups(keys: KeyRow[]): Map<string, string> {
  const sizes = new Map<string, number>();
  for (const { group } of keys) sizes.set(group, (sizes.get(group) ?? 0) + 1);
  const joined = new Map<string, string>();
  const depthOf = (name: string): number => name.split("/").length;
  // The deepest first: a parent may then have a single chart, too.
  for (let depth = Math.max(1, ...[...sizes.keys()].map(depthOf)); depth > 0; depth -= 1)
    for (const [name, size] of [...sizes]) {
      if (size > 1 || name === "" || depthOf(name) !== depth) continue;
      // What stepscope measures stays separate from what was logged.
      if (depth === 1 && isOwn(name)) continue;
      const parent = name.split("/").slice(0, -1).join("/");
      sizes.set(parent, (sizes.get(parent) ?? 0) + 1);
      joined.set(name, parent);
    }
  return joined;
}

function isOwn(name: string): boolean {
  return OWN.has(name.split("/")[0] ?? "");
}
