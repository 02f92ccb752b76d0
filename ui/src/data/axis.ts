// Maps stored positions of series (step, time) to x and back.
//
// Step-like axes (step, epoch, samples, tokens) request series by step, the others by time. An axis that counts
// something other than steps is mapped through a series that has the count at each step.

import type { AxisChoice, AxisName, Segment, Series, SeriesAxis } from "./types";

export const AXIS_NAMES: AxisName[] = ["step", "epoch", "samples", "tokens", "active", "process", "wall"];

const WORDS: Record<AxisName, string> = {
  step: "Step",
  epoch: "Epoch",
  samples: "Samples",
  tokens: "Tokens",
  active: "Relative (active time)",
  process: "Relative (process)",
  wall: "Wall clock",
};

export function axisTitle(name: AxisName): string {
  return WORDS[name];
}

/** The axis of requests to the server for this axis. */
export function storedAxis(name: AxisName): SeriesAxis {
  return name === "step" || name === "epoch" || name === "samples" || name === "tokens" ? "step" : "seconds";
}

/** Why an axis cannot be used; null if it can. */
export function whyNot(axes: readonly AxisChoice[], name: AxisName): string | null {
  if (axes.length === 0) return name === "step" || name === "wall" ? null : "The run has not been read yet.";
  const axis = axes.find((candidate) => candidate.name === name);
  return axis ? axis.why_not : `This run has no axis of ${WORDS[name].toLowerCase()}.`;
}

/** Maps steps or seconds to x and back, for one run and one axis. */
export interface AxisMap {
  /** x of a stored position; `segment` matters only if each process has its own zero. */
  toX(stored: number, segment?: string): number;
  /** The stored position of x; null if there are several. */
  toStored(x: number): number | null;
}

const SAME: AxisMap = { toX: (stored) => stored, toStored: (x) => x };

export function axisMap(name: AxisName, segments: readonly Segment[], mapping: Series | null): AxisMap {
  switch (name) {
    case "step":
    case "wall":
      return SAME;
    case "active":
      return activeTime(segments);
    case "process":
      return processTime(segments);
    default:
      return mapping ? throughSeries(mapping) : SAME;
  }
}

/** Seconds of work since the first start, without the time between segments. */
function activeTime(segments: readonly Segment[]): AxisMap {
  const ordered = [...segments].sort((a, b) => a.started - b.started);
  if (ordered.length === 0) return SAME;
  const before: number[] = [];
  let worked = 0;
  ordered.forEach((segment, at) => {
    before.push(worked);
    const next = ordered[at + 1]?.started ?? Infinity;
    worked += Math.max(0, Math.min(segment.ended ?? next, next) - segment.started);
  });
  return {
    toX(time) {
      let at = ordered.length - 1;
      while (at > 0 && time < ordered[at]!.started) at -= 1;
      const most = (before[at + 1] ?? Infinity) - before[at]!;
      return before[at]! + Math.min(Math.max(time - ordered[at]!.started, 0), most);
    },
    toStored(x) {
      let at = ordered.length - 1;
      while (at > 0 && x < before[at]!) at -= 1;
      return ordered[at]!.started + (x - before[at]!);
    },
  };
}

/** Seconds since the start of the process: the segments overlap. */
function processTime(segments: readonly Segment[]): AxisMap {
  const ordered = [...segments].sort((a, b) => a.started - b.started);
  const starts = new Map(ordered.map((segment) => [segment.id, segment.started]));
  return {
    toX(time, segment) {
      const started = segment === undefined ? undefined : starts.get(segment);
      if (started !== undefined) return Math.max(time - started, 0);
      const holder = ordered.findLast((segment) => segment.started <= time) ?? ordered[0];
      return holder ? Math.max(time - holder.started, 0) : time;
    },
    toStored: (x) => (ordered.length === 1 ? ordered[0]!.started + x : null),
  };
}

/** Piecewise linear between the buckets of an increasing series, extrapolated with its last slope. */
function throughSeries(mapping: Series): AxisMap {
  const steps: number[] = [];
  const counts: number[] = [];
  for (let at = 0; at < mapping.start.length; at += 1) {
    const value = mapping.last[at]!;
    if (!Number.isFinite(value)) continue;
    steps.push(mapping.start[at]!);
    // A count that restarts after a resume would make x ambiguous: here it never decreases.
    counts.push(Math.max(value, counts[counts.length - 1] ?? -Infinity));
  }
  if (steps.length === 0) return SAME;
  return { toX: (step) => interpolate(steps, counts, step), toStored: (x) => interpolate(counts, steps, x) };
}

/** The value at `x` of the line through the points, extrapolated beyond its ends. */
export function interpolate(xs: readonly number[], ys: readonly number[], x: number): number {
  const end = xs.length - 1;
  if (end === 0) return ys[0]! + (x - xs[0]!);
  let low = 0;
  let high = end;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle]! <= x) low = middle;
    else high = middle;
  }
  const outside = x < xs[0]! || x > xs[end]!;
  const [from, to] = outside ? [0, end] : [low, high];
  const anchor = x > xs[end]! ? end : from;
  const distance = xs[to]! - xs[from]!;
  return distance === 0 ? ys[to]! : ys[anchor]! + ((x - xs[anchor]!) * (ys[to]! - ys[from]!)) / distance;
}

const MAX_TABLE = 8192;

/** Maps times to steps and back; learned from any series logged by step. */
export class StepClock {
  private steps: number[] = [];
  private times: number[] = [];
  /** Number of buckets of the series that the table was learned from. */
  private learned = 0;

  get known(): boolean {
    return this.steps.length > 0;
  }

  /** Uses the table of a series if it has more entries than the current one. */
  learn(series: Series): void {
    if (series.axis !== "step" || series.superseded || series.start.length < this.learned) return;
    const steps: number[] = [];
    const times: number[] = [];
    for (let at = 0; at < series.start.length; at += 1) {
      const time = series.time[at]!;
      if (time > 0 && time >= (times[times.length - 1] ?? -Infinity)) {
        // The time is that of the last point in the bucket.
        steps.push(series.start[at]! + (series.exact ? 0 : series.width - 1));
        times.push(time);
      }
    }
    if (steps.length > 0) [this.steps, this.times, this.learned] = [steps, times, series.start.length];
  }

  /** Adds live points that are newer than the table. */
  follow(steps: readonly number[], times: readonly number[]): void {
    if (!this.known) return;
    times.forEach((time, at) => {
      if (time <= this.times[this.times.length - 1]!) return;
      this.steps.push(steps[at]!);
      this.times.push(time);
    });
    if (this.times.length <= MAX_TABLE) return;
    // The table must not grow without limit in a tab that stays open for days; the newest entry stays.
    const isKept = (_: number, at: number): boolean => (this.times.length - 1 - at) % 2 === 0;
    [this.steps, this.times] = [this.steps.filter(isKept), this.times.filter(isKept)];
  }

  /** The step at a time; no extrapolation: the first or last step outside of the known times. */
  stepAt(time: number): number | null {
    if (!this.known) return null;
    const inside = Math.min(Math.max(time, this.times[0]!), this.times[this.times.length - 1]!);
    return Math.max(0, Math.round(interpolate(this.times, this.steps, inside)));
  }

  timeAt(step: number): number | null {
    return this.known ? interpolate(this.steps, this.times, step) : null;
  }
}
