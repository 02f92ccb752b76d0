// One line of a chart in memory: at most 4,096 buckets, for any length of the run.
//
// A bucket starts at a multiple of the width, so a point always belongs to the same bucket and history never
// moves. When there are too many, the width doubles and pairs of buckets are merged. Counts include values that
// are not finite; minimum, maximum and mean exclude them; `last` and `time` belong to the point logged last.

import type { Series, SeriesColumn } from "./types";
import { SERIES_COLUMNS } from "./types";

export const MAX_BUCKETS = 4096;
const FIRST_CAPACITY = 256;

/** Raw points in the order they were logged; `x` in units of the buffer's axis. */
export interface Points {
  x: ArrayLike<number>;
  times: ArrayLike<number>;
  values: ArrayLike<number>;
}

export type Columns = Record<SeriesColumn, Float64Array>;

export class SeriesBuffer {
  /** Number of buckets. */
  length = 0;
  width = 1;
  /** Number of points in all buckets. */
  points = 0;
  /** Changes whenever a bucket does. */
  version = 0;
  private columns = emptyColumns(FIRST_CAPACITY);

  constructor(private readonly most: number = MAX_BUCKETS) {
    if (most < 2) throw new RangeError(`A buffer of ${most} buckets cannot merge pairs; give it at least 2.`);
  }

  get start(): Float64Array {
    return this.column("start");
  }
  get count(): Float64Array {
    return this.column("count");
  }
  get min(): Float64Array {
    return this.column("min");
  }
  get max(): Float64Array {
    return this.column("max");
  }
  get mean(): Float64Array {
    return this.column("mean");
  }
  get last(): Float64Array {
    return this.column("last");
  }
  get nonfinite(): Float64Array {
    return this.column("nonfinite");
  }
  get time(): Float64Array {
    return this.column("time");
  }

  /** No bucket holds more than one point. */
  get exact(): boolean {
    return this.points === this.length;
  }

  /** Adds points in any order of x. */
  append(points: Points): void {
    for (let at = 0; at < points.x.length; at += 1) {
      this.add(points.x[at]!, points.times[at]!, points.values[at]!);
    }
    if (points.x.length) this.version += 1;
  }

  /** Replaces the content with a response of the server; the columns are copied. */
  replace(series: Series): void {
    const length = series.start.length;
    this.columns = emptyColumns(Math.max(FIRST_CAPACITY, length));
    for (const name of SERIES_COLUMNS) this.columns[name].set(series[name]);
    this.length = length;
    this.width = series.width > 0 ? series.width : 1;
    this.points = length === 0 ? 0 : sum(series.count);
    while (this.length > this.most) this.doubleWidth();
    this.version += 1;
  }

  private column(name: SeriesColumn): Float64Array {
    return this.columns[name].subarray(0, this.length);
  }

  private add(x: number, time: number, value: number): void {
    const start = Math.floor(x / this.width) * this.width;
    let at = this.length;
    if (at > 0 && this.columns.start[at - 1]! >= start) at = this.lowerBound(start);
    if (at === this.length || this.columns.start[at] !== start) this.insert(at, start);
    this.addTo(at, time, value);
    this.points += 1;
    while (this.length > this.most) this.doubleWidth();
  }

  private addTo(at: number, time: number, value: number): void {
    const { count, min, max, mean, last, nonfinite, time: times } = this.columns;
    count[at]! += 1;
    if (Number.isFinite(value)) {
      const finite = count[at]! - nonfinite[at]!;
      mean[at] = finite === 1 ? value : mean[at]! + (value / finite - mean[at]! / finite);
      min[at] = finite === 1 ? value : Math.min(min[at]!, value);
      max[at] = finite === 1 ? value : Math.max(max[at]!, value);
    } else {
      nonfinite[at]! += 1;
    }
    if (count[at] === 1 || time >= times[at]!) {
      last[at] = value;
      times[at] = time;
    }
  }

  private lowerBound(start: number): number {
    let low = 0;
    let high = this.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.columns.start[middle]! < start) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  private insert(at: number, start: number): void {
    if (this.length === this.columns.start.length) this.grow();
    for (const name of SERIES_COLUMNS) {
      const column = this.columns[name];
      if (at < this.length) column.copyWithin(at + 1, at, this.length);
      column[at] = name === "start" ? start : name === "count" || name === "nonfinite" ? 0 : NaN;
    }
    this.length += 1;
  }

  private grow(): void {
    // One more than the maximum: a bucket is added first, then pairs are merged.
    const bigger = emptyColumns(
      Math.min(this.columns.start.length * 2, Math.max(this.most, this.length) + 1),
    );
    for (const name of SERIES_COLUMNS) bigger[name].set(this.column(name));
    this.columns = bigger;
  }

  private doubleWidth(): void {
    this.width *= 2;
    let kept = 0;
    for (let at = 0; at < this.length; at += 1) {
      const start = Math.floor(this.columns.start[at]! / this.width) * this.width;
      if (kept > 0 && this.columns.start[kept - 1] === start) {
        this.mergeInto(kept - 1, at);
      } else {
        for (const name of SERIES_COLUMNS) this.columns[name][kept] = this.columns[name][at]!;
        this.columns.start[kept] = start;
        kept += 1;
      }
    }
    this.length = kept;
  }

  private mergeInto(kept: number, at: number): void {
    const { count, min, max, mean, last, nonfinite, time } = this.columns;
    const keptFinite = count[kept]! - nonfinite[kept]!;
    const finite = count[at]! - nonfinite[at]!;
    if (finite > 0) {
      mean[kept] =
        keptFinite === 0
          ? mean[at]!
          : mean[kept]! * (keptFinite / (keptFinite + finite)) + mean[at]! * (finite / (keptFinite + finite));
      min[kept] = keptFinite === 0 ? min[at]! : Math.min(min[kept]!, min[at]!);
      max[kept] = keptFinite === 0 ? max[at]! : Math.max(max[kept]!, max[at]!);
    }
    count[kept]! += count[at]!;
    nonfinite[kept]! += nonfinite[at]!;
    if (time[at]! >= time[kept]!) {
      last[kept] = last[at]!;
      time[kept] = time[at]!;
    }
  }
}

function emptyColumns(capacity: number): Columns {
  return Object.fromEntries(SERIES_COLUMNS.map((name) => [name, new Float64Array(capacity)])) as Columns;
}

function sum(values: Float64Array): number {
  let total = 0;
  for (const value of values) total += value;
  return total;
}
