// Names lines as shortly as they can be told apart.

import type { Owner } from "./source";

const UNIT_ENDING = /_(bytes_per_second|per_second|seconds|bytes|ratio|celsius|watts|joules|hertz|total)$/;

/** Short names of keys that are shown together: without the group and the unit they share. */
export function keyLabels(keys: readonly string[]): string[] {
  if (keys.length === 1) return [keys[0]!.replaceAll("_", " ")];
  const groups = new Set(keys.map((key) => key.slice(0, key.lastIndexOf("/") + 1)));
  const bare = groups.size === 1 ? keys.map((key) => key.slice(key.lastIndexOf("/") + 1)) : [...keys];
  const endings = new Set(bare.map((key) => UNIT_ENDING.exec(key)?.[0] ?? ""));
  const short = endings.size === 1 ? bare.map((key) => key.replace(UNIT_ENDING, "")) : bare;
  const unique = new Set(short).size === keys.length && short.every(Boolean);
  return (unique ? short : [...keys]).map((key) => key.replaceAll("_", " "));
}

/** Where a line was measured, as far as it differs within the chart. */
export function placeLabel(
  owner: Owner,
  per: "rank" | "device" | "host" | "none",
  all: readonly Owner[],
): string {
  if (per === "none") return "";
  const severalHosts = new Set(all.map((one) => one.host)).size > 1;
  const host = severalHosts && owner.host ? owner.host : "";
  if (per === "host") return owner.host;
  if (per === "device" && owner.device) return [host, owner.device].filter(Boolean).join(" ");
  return owner.rank === null ? host || owner.device : `rank ${owner.rank}`;
}
