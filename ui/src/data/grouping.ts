// Combines the lines of several runs: their mean and their spread.

import type { Columns } from "./buffer";
import { SERIES_COLUMNS } from "./types";

/** Minimum to maximum, or the 10th to 90th percentile. */
export type Spread = "range" | "quantiles";

/** The line of one run; x ascends. */
export interface Member extends Columns {
  x: Float64Array;
}

/** Buckets over several runs; `count` is the number of runs with a value. */
export interface Gathered extends Columns {
  x: Float64Array;
  width: number;
}

/**
 * Combines runs on one set of buckets; in each a run counts once, regardless of how often it logged.
 *
 * A bucket needs more than half of the runs: where a run has ended, the mean of the others would jump.
 */
export function acrossRuns(members: readonly Member[], spread: Spread): Gathered {
  const known = members.filter((member) => member.x.length > 0);
  const width = commonWidth(known);
  const rows = new Map<number, Bucket[]>();
  for (const member of known)
    for (const [place, bucket] of bucketsOf(member, width)) {
      const row = rows.get(place);
      if (row) row.push(bucket);
      else rows.set(place, [bucket]);
    }
  const places = [...rows.keys()]
    .filter((place) => rows.get(place)!.length * 2 > known.length)
    .sort((a, b) => a - b);
  const columns = Object.fromEntries(
    ["x", ...SERIES_COLUMNS].map((name) => [name, new Float64Array(places.length)]),
  ) as unknown as Gathered;
  places.forEach((place, at) => {
    const row = bucketOf(rows.get(place)!, spread);
    columns.x[at] = place * width;
    for (const name of SERIES_COLUMNS) columns[name][at] = row[name];
  });
  return { ...columns, width };
}

/** The values of one run within a bucket. */
interface Bucket {
  start: number;
  time: number;
  mean: number;
  last: number;
  nonfinite: number;
}

/** Wide enough that a run that logs rarely has a value in each; a power of two, so that buckets do not move. */
function commonWidth(members: readonly Member[]): number {
  const widest = Math.max(0, ...members.map((member) => usualDistance(member.x)));
  return widest > 0 ? 2 ** Math.ceil(Math.log2(widest) - 1e-9) : 1;
}

function usualDistance(x: Float64Array): number {
  const distances = new Float64Array(Math.max(0, x.length - 1));
  for (let at = 1; at < x.length; at += 1) distances[at - 1] = x[at]! - x[at - 1]!;
  const positive = distances.filter((distance) => distance > 0).sort();
  return positive[positive.length >> 1] ?? 0;
}

function* bucketsOf(member: Member, width: number): Generator<[number, Bucket]> {
  let at = 0;
  while (at < member.x.length) {
    const place = Math.floor(member.x[at]! / width + 1e-9);
    const from = at;
    let [total, finite, nonfinite, last, time] = [0, 0, 0, NaN, -Infinity];
    for (; at < member.x.length && Math.floor(member.x[at]! / width + 1e-9) === place; at += 1) {
      const count = member.count[at]! - member.nonfinite[at]!;
      if (count > 0) {
        total += member.mean[at]! * count;
        finite += count;
        last = member.last[at]!;
      }
      nonfinite += member.nonfinite[at]!;
      time = Math.max(time, member.time[at]!);
    }
    const mean = finite > 0 ? total / finite : NaN;
    yield [place, { start: member.start[from]!, time, mean, last, nonfinite }];
  }
}

function bucketOf(row: readonly Bucket[], spread: Spread): Record<(typeof SERIES_COLUMNS)[number], number> {
  const means = row
    .map((bucket) => bucket.mean)
    .filter(Number.isFinite)
    .sort((a, b) => a - b);
  const lasts = row.map((bucket) => bucket.last).filter(Number.isFinite);
  const [low, high] = spread === "range" ? [0, 1] : [0.1, 0.9];
  return {
    start: Math.min(...row.map((bucket) => bucket.start)),
    time: Math.max(...row.map((bucket) => bucket.time)),
    count: means.length,
    min: quantile(means, low),
    max: quantile(means, high),
    mean: average(means),
    last: average(lasts),
    nonfinite: row.reduce((total, bucket) => total + bucket.nonfinite, 0),
  };
}

/** A quantile of ascending values, interpolated; NaN if there are none. */
export function quantile(values: readonly number[], share: number): number {
  if (values.length === 0) return NaN;
  const place = share * (values.length - 1);
  const below = Math.floor(place);
  const above = Math.min(below + 1, values.length - 1);
  return values[below]! + (values[above]! - values[below]!) * (place - below);
}

function average(values: readonly number[]): number {
  return values.length ? values.reduce((total, value) => total + value, 0) / values.length : NaN;
}
