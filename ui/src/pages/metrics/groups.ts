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

/** Groups by prefix: what has none first, then by name, then what was measured unasked. */
export function groupsOf(keys: KeyInfo[], filter: string): Group[] {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const groups = new Map<string, KeyInfo[]>();
  for (const info of keys) {
    const where = info.key.toLowerCase();
    if (!words.every((word) => where.includes(word))) continue;
    const name = info.group || TRAINING;
    const there = groups.get(name);
    if (there) there.push(info);
    else groups.set(name, [info]);
  }
  const made = [...groups].map(([name, members]) => ({
    name,
    keys: members,
    isOwn: OWN.has(name.split("/")[0] ?? ""),
  }));
  const rank = (group: Group): number => (group.name === TRAINING ? 0 : group.isOwn ? 2 : 1);
  return made.sort((a, b) => rank(a) - rank(b) || a.name.localeCompare(b.name, undefined, { numeric: true }));
}
