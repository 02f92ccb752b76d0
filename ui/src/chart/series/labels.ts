// Gives lines short names that still distinguish them.

import type { Owner } from "./source";

const UNIT_ENDING = /_(bytes_per_second|per_second|seconds|bytes|ratio|celsius|watts|joules|hertz|total)$/;

/** The time of whole steps, which is shown beside the keys of a group. */
const WHOLE = "step_seconds";

/** Short names of keys that are shown together, without a shared group and unit. */
export function keyLabels(keys: readonly string[]): string[] {
  if (keys.length === 1) return [keys[0]!.replaceAll("_", " ")];
  const groups = new Set(keys.filter((key) => key !== WHOLE).map((key) => key.slice(0, key.lastIndexOf("/") + 1)));
  const bare = groups.size === 1 ? keys.map((key) => key.slice(key.lastIndexOf("/") + 1)) : [...keys];
  const endings = new Set(bare.map((key) => UNIT_ENDING.exec(key)?.[0] ?? ""));
  const short = endings.size === 1 ? bare.map((key) => key.replace(UNIT_ENDING, "")) : bare;
  const unique = new Set(short).size === keys.length && short.every(Boolean);
  return (unique ? short : [...keys]).map((key) => key.replaceAll("_", " "));
}

const deviceNames = new Map<string, string>();

/** Registers readable names of devices, such as `gpu 3` instead of an identifier. */
export function nameDevices(places: Iterable<{ device: string; device_name: string }>): void {
  for (const { device, device_name } of places) if (device && device_name) deviceNames.set(device, device_name);
}

/** The place a line was measured at, as far as places differ within the chart. */
export function placeLabel(
  owner: Owner,
  per: "rank" | "device" | "host" | "none",
  all: readonly Owner[],
): string {
  if (per === "none") return "";
  const severalHosts = new Set(all.map((other) => other.host)).size > 1;
  const host = severalHosts && owner.host ? owner.host : "";
  if (per === "host") return owner.host;
  const device = deviceNames.get(owner.device) ?? owner.device;
  if (per === "device" && device) return [host, device].filter(Boolean).join(" ");
  return owner.rank === null ? host || device : `rank ${owner.rank}`;
}
