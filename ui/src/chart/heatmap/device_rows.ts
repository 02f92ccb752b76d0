// Arranges the lines of many devices as a heatmap: a row for each, time from left to right.

import type { Heatmap } from "../../data/types";
import type { Line } from "../series/lines";
import type { Range } from "../control/sync";

export interface DeviceField {
  heatmap: Heatmap;
  /** The name of each row. */
  rows: string[];
}

const MAX_COLUMNS = 400;

/** The heatmap of the lines on the first y axis; their buckets share one grid, so columns are whole buckets. */
export function fieldOf(lines: readonly Line[], { from, to }: Range, unit: string): DeviceField {
  const standing = lines.filter((line) => !line.superseded && line.scale === "y");
  const groups = [...new Map(standing.map((line) => [line.group, line.label]))];
  const distance = Math.max(...standing.map(usualDistance), (to - from) / 1e9);
  const width = distance * Math.max(1, Math.ceil((to - from) / distance / MAX_COLUMNS));
  const first = Math.min(...standing.flatMap(({ x }) => x.find((at) => at >= from) ?? []));
  const columns = first <= to ? Math.floor((to - first) / width + 0.5) + 1 : 0;
  const sums = groups.map(() => Array.from({ length: columns }, () => ({ total: 0, count: 0 })));
  for (const line of standing) {
    const row = sums[groups.findIndex(([group]) => group === line.group)]!;
    line.x.forEach((x, at) => {
      const cell = row[Math.floor((x - first) / width + 1e-6)];
      if (x < from || x > to || !cell || Number.isNaN(line.value[at]!)) return;
      cell.total += line.value[at]!;
      cell.count += 1;
    });
  }
  const heatmap: Heatmap = {
    key: standing[0]?.key ?? "",
    unit,
    ranks: groups.map((_, at) => at),
    hosts: [],
    starts: Array.from({ length: columns }, (_, at) => first + at * width),
    width,
    values: sums.map((row) => row.map(({ total, count }) => (count ? total / count : null))),
    late: null,
  };
  return { heatmap, rows: groups.map(([, label]) => label) };
}

/** The usual distance between the buckets of a line. */
function usualDistance({ x }: Line): number {
  const distances = Array.from(x.subarray(1), (at, before) => at - x[before]!).sort(
    (a, b) => a - b,
  );
  return distances[distances.length >> 1] ?? 0;
}
