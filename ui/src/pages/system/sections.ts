// Groups machine metrics into sections, most important first.

import type { KeyRow } from "../../data";

export interface Section {
  name: string;
  title: string;
  keys: KeyRow[];
}

const TITLES: Record<string, string> = {
  gpu: "GPU",
  cpu: "Processor",
  memory: "Memory",
  disk: "Disk",
  network: "Network",
  process: "Processes and loader workers",
  processes: "Processes and loader workers",
  loader: "Loader workers",
  energy: "Energy",
};
const ORDER = ["gpu", "process", "processes", "loader", "cpu", "memory", "disk", "network", "energy"];
const FIRST = [
  "gpu/utilization_ratio",
  "gpu/memory_used_bytes",
  "gpu/power_watts",
  "gpu/temperature_celsius",
  "gpu/sm_active_ratio",
  "gpu/sm_clock_hertz",
  "cpu/utilization_ratio",
  "cpu/iowait_ratio",
  "memory/used_bytes",
  "disk/read_bytes_per_second",
  "disk/write_bytes_per_second",
  "network/received_bytes_per_second",
  "network/sent_bytes_per_second",
];

const CONSTANT = /(_total_bytes|_limit_watts|_most|_limit_cores|\/total_bytes)$/;

function rank(list: string[], name: string): number {
  const at = list.indexOf(name);
  return at < 0 ? list.length : at;
}

/** Sections by the first part of the key, each with the most important keys first. */
export function sectionsOf(keys: KeyRow[], filter: string): Section[] {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const sections = new Map<string, KeyRow[]>();
  for (const info of keys) {
    if (!words.every((word) => info.key.toLowerCase().includes(word))) continue;
    const name = info.key.split("/")[0] ?? "";
    sections.set(name, [...(sections.get(name) ?? []), info]);
  }
  return [...sections]
    .map(([name, members]) => ({
      name,
      title: TITLES[name] ?? name,
      keys: members.sort(
        (a, b) =>
          rank(FIRST, a.key) - rank(FIRST, b.key) ||
          Number(CONSTANT.test(a.key)) - Number(CONSTANT.test(b.key)) ||
          a.key.localeCompare(b.key, "en", { numeric: true }),
      ),
    }))
    .sort((a, b) => rank(ORDER, a.name) - rank(ORDER, b.name) || a.name.localeCompare(b.name));
}

const WORDS: Record<string, string> = {
  gpu: "GPU",
  cpu: "CPU",
  pcie: "PCIe",
  ecc: "ECC",
  sm: "SM",
  dram: "DRAM",
  nvlink: "NVLink",
  shm: "shm",
  rss: "RSS",
  pss: "PSS",
  uss: "USS",
  iowait: "I/O wait",
  cgroup: "cgroup",
  "1m": "1 min",
  "5m": "5 min",
  "15m": "15 min",
};
const UNIT = /_(ratio|bytes|celsius|watts|hertz|bytes_per_second|per_second|joules_total|total|seconds)$/;

/** A readable title of a key: `gpu/sm_active_ratio` is `SM active`. */
export function titleOf(info: KeyRow): string {
  const name = (info.key.split("/").slice(1).join(" ") || info.key).replace(UNIT, "");
  const words = name
    .split("_")
    .map((word, at) => WORDS[word] ?? (at === 0 ? word.charAt(0).toUpperCase() + word.slice(1) : word));
  return words.join(" ");
}
