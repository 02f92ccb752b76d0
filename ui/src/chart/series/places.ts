// Reduces many ranks or devices to their mean, their range, and the worst of them.

import type { Columns } from "../../data/buffer";
import { SERIES_COLUMNS } from "../../data/types";
import type { Part } from "./lines";
import type { JoinedSeries } from "./joined_series";

/** Keys for which a lower value is worse: an idle device, a slow rank. */
const LESS_IS_WORSE = /utilization|_active_ratio|busy|per_second|throughput|accuracy|mfu|headroom|free/;

export function meanAndWorst(
  joined: readonly JoinedSeries[],
  names: { run: string; key: string; prefix: string },
): Part[] {
  const { run, key, prefix } = names;
  const standing = joined.filter((series) => !series.superseded);
  const width = Math.max(...standing.map((series) => series.width));
  const together = combine(
    standing.map((series) => series.columns),
    width,
  );
  const { place, ...worst } = worstOf(standing, key);
  const named = (text: string): string => [prefix, text].filter(Boolean).join(" · ");
  return [
    {
      key,
      run,
      group: JSON.stringify([run, key, "mean"]),
      label: named(`mean of ${standing.length}`),
      superseded: false,
      plain: false,
      segment: "",
      columns: together,
      whole: together.start.length,
      exact: false,
      width,
    },
    {
      ...worst,
      key,
      run,
      group: JSON.stringify([run, key, "worst"]),
      label: named(`worst: ${place}`),
      plain: true,
    },
  ];
}

export function worstOf(joined: readonly JoinedSeries[], key: string): JoinedSeries {
  const sign = LESS_IS_WORSE.test(key) ? -1 : 1;
  const levels = joined.map((series) => sign * average(series.columns));
  return joined[levels.indexOf(Math.max(...levels.filter((level) => !Number.isNaN(level))))] ?? joined[0]!;
}

function average({ mean, count, nonfinite }: Columns): number {
  let total = 0;
  let points = 0;
  for (let at = 0; at < mean.length; at += 1) {
    const finite = count[at]! - nonfinite[at]!;
    if (finite > 0) {
      total += mean[at]! * finite;
      points += finite;
    }
  }
  return points ? total / points : NaN;
}

/** One set of buckets over all places; each place counts once, by its mean. */
export function combine(all: readonly Columns[], width: number): Columns {
  const rows = new Map<number, { means: number; places: number; row: Record<string, number> }>();
  for (const columns of all) {
    for (let at = 0; at < columns.start.length; at += 1) {
      const start = Math.floor(columns.start[at]! / width) * width;
      const known = rows.get(start) ?? {
        means: 0,
        places: 0,
        row: { start, count: 0, min: NaN, max: NaN, mean: NaN, last: NaN, nonfinite: 0, time: -Infinity },
      };
      rows.set(start, known);
      addBucket(known, columns, at);
    }
  }
  const ordered = [...rows.values()].sort((a, b) => a.row.start! - b.row.start!);
  return Object.fromEntries(
    SERIES_COLUMNS.map((name) => [name, Float64Array.from(ordered, ({ row }) => row[name]!)]),
  ) as Columns;
}

function addBucket(
  known: { means: number; places: number; row: Record<string, number> },
  columns: Columns,
  at: number,
): void {
  const { row } = known;
  row.count! += columns.count[at]!;
  row.nonfinite! += columns.nonfinite[at]!;
  row.time = Math.max(row.time!, columns.time[at]!);
  const mean = columns.mean[at]!;
  if (Number.isNaN(mean)) return;
  known.means += mean;
  known.places += 1;
  row.mean = known.means / known.places;
  row.last = row.mean;
  row.min = Number.isNaN(row.min!) ? columns.min[at]! : Math.min(row.min!, columns.min[at]!);
  row.max = Number.isNaN(row.max!) ? columns.max[at]! : Math.max(row.max!, columns.max[at]!);
}
