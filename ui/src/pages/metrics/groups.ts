// Sorts the keys of a run into the sections of a page.

import type { KeyInfo } from "../../data";

export interface Group {
  name: string;
  keys: KeyInfo[];
  /** What stepscope measures by itself comes last and begins folded. */
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

/** Groups by prefix: what has none first, then by name, then what was measured unasked. */
export function groupsOf(keys: KeyInfo[], filter: string): Group[] {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  // Before the filter: a chart stays in its group while others are filtered out of it.
  const joined = joinedGroups(keys);
  const groups = new Map<string, KeyInfo[]>();
  for (const info of keys) {
    const where = info.key.toLowerCase();
    if (!words.every((word) => where.includes(word))) continue;
    let name = info.group;
    while (joined.has(name)) name = joined.get(name)!;
    name ||= TRAINING;
    const there = groups.get(name);
    if (there) there.push(info);
    else groups.set(name, [info]);
  }
  const made = [...groups].map(([name, members]) => ({
    name,
    keys: members.sort((a, b) => order.compare(a.key, b.key)),
    isOwn: isOwn(name),
  }));
  const rank = (group: Group): number => (group.name === TRAINING ? 0 : group.isOwn ? 2 : 1);
  return made.sort((a, b) => rank(a) - rank(b) || order.compare(a.name, b.name));
}

/** Groups of a single chart, with the group each is joined into: a chart alone leaves its row empty. */
function joinedGroups(keys: KeyInfo[]): Map<string, string> {
  const sizes = new Map<string, number>();
  for (const { group } of keys) sizes.set(group, (sizes.get(group) ?? 0) + 1);
  const joined = new Map<string, string>();
  const depthOf = (name: string): number => name.split("/").length;
  // The deepest first: a parent may then be left with a single chart as well.
  for (let depth = Math.max(1, ...[...sizes.keys()].map(depthOf)); depth > 0; depth -= 1)
    for (const [name, size] of [...sizes]) {
      if (size > 1 || name === "" || depthOf(name) !== depth) continue;
      // What was measured unasked stays apart from what was logged.
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
