// The data of one line: all of it in coarse buckets, and the zoomed part in finer ones.

import { SeriesBuffer, type Columns } from "../../data/buffer";
import { SERIES_COLUMNS, type PointsOfSeries, type Series, type WireNumber } from "../../data/types";
import type { Range } from "../control/sync";

/** The run, key and place a line belongs to. */
export interface Owner {
  run: string;
  key: string;
  rank: number | null;
  host: string;
  device: string;
  segment: string;
  superseded: boolean;
}

export function ownerName(owner: Owner): string {
  const { run, key, rank, host, device, segment, superseded } = owner;
  return JSON.stringify([run, key, rank, host, device, segment, superseded]);
}

export class SourceLine {
  readonly owner: Owner;
  readonly whole = new SeriesBuffer();
  private detail: SeriesBuffer | null = null;
  private detailRange: Range | null = null;
  /** The time of the last point of each place: the stream may send a point twice. */
  private readonly seen = new Map<string, number>();
  private seenByAll = -Infinity;
  private cached: { version: number; columns: Columns; exact: boolean; width: number } | null = null;

  constructor(
    run: string,
    series: Series,
    private readonly bySteps: boolean,
  ) {
    const { key, rank, host, device, segment, superseded } = series;
    this.owner = { run, key, rank, host, device, segment, superseded };
    this.takeWhole(series);
  }

  takeWhole(series: Series): void {
    this.whole.replace(series);
    this.seen.clear();
    this.seenByAll = latest(series.time);
    this.dropDetail();
  }

  /** The time of its last known point. */
  get lastTime(): number {
    return Math.max(this.seenByAll, ...this.seen.values());
  }

  /** Sets finer buckets of a part, in stored units. */
  takeDetail(series: Series, range: Range): void {
    this.detail ??= new SeriesBuffer();
    this.detail.replace(series);
    this.detailRange = range;
    this.seenByAll = Math.max(this.seenByAll, latest(series.time));
    this.cached = null;
  }

  dropDetail(): void {
    this.detail = null;
    this.detailRange = null;
    this.cached = null;
  }

  /** Adds live points; returns whether any were new. */
  append(points: PointsOfSeries): boolean {
    const place = `${points.rank}\n${points.host}\n${points.device}`;
    let last = this.seen.get(place) ?? this.seenByAll;
    const x: number[] = [];
    const times: number[] = [];
    const values: number[] = [];
    points.times.forEach((time, at) => {
      if (time <= last) return;
      last = time;
      // Machine samples have no step: the server adds the step in progress at the time.
      x.push(this.bySteps ? points.steps[at]! : time);
      times.push(time);
      values.push(numberOf(points.values[at]!));
    });
    this.seen.set(place, last);
    if (x.length === 0) return false;
    this.whole.append({ x, times, values });
    this.appendToDetail(x, times, values);
    this.cached = null;
    return true;
  }

  /** All data, with the fine part instead of the coarse one. */
  get columns(): Columns {
    return this.join().columns;
  }

  get exact(): boolean {
    return this.join().exact;
  }

  /** The width of a bucket where it is finest. */
  get width(): number {
    return this.join().width;
  }

  private appendToDetail(x: number[], times: number[], values: number[]): void {
    if (!this.detail || !this.detailRange) return;
    const { from, to } = this.detailRange;
    const inside = x.map((_, at) => at).filter((at) => x[at]! >= from && x[at]! <= to);
    const pick = (list: number[]): number[] => inside.map((at) => list[at]!);
    this.detail.append({ x: pick(x), times: pick(times), values: pick(values) });
  }

  private join(): { columns: Columns; exact: boolean; width: number } {
    const version = this.whole.version + (this.detail?.version ?? 0);
    if (this.cached?.version === version) return this.cached;
    const { whole, detail, detailRange: range } = this;
    if (!detail || !range || detail.length === 0) {
      this.cached = { version, columns: columnsOf(whole), exact: whole.exact, width: whole.width };
    } else {
      const before = firstAtLeast(whole.start, Math.min(range.from, detail.start[0]!));
      const after = firstAtLeast(whole.start, range.to);
      const parts = SERIES_COLUMNS.map((name) => {
        const column = new Float64Array(before + detail.length + whole.length - after);
        column.set(whole[name].subarray(0, before));
        column.set(detail[name], before);
        column.set(whole[name].subarray(after), before + detail.length);
        return [name, column];
      });
      this.cached = {
        version,
        columns: Object.fromEntries(parts) as Columns,
        exact: detail.exact,
        width: detail.width,
      };
    }
    return this.cached;
  }
}

/** The first index whose value is not below `limit` in ascending values. */
export function firstAtLeast(values: ArrayLike<number>, limit: number): number {
  let low = 0;
  let high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle]! < limit) low = middle + 1;
    else high = middle;
  }
  return low;
}

function columnsOf(buffer: SeriesBuffer): Columns {
  return Object.fromEntries(SERIES_COLUMNS.map((name) => [name, buffer[name]])) as Columns;
}

function latest(times: Float64Array): number {
  let newest = -Infinity;
  for (const time of times) if (time > newest) newest = time;
  return newest;
}

function numberOf(value: WireNumber): number {
  return typeof value === "number" ? value : Number(value);
}
