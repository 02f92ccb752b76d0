// Computes the range of the y axis.

import { firstAtLeast } from "./source";
import type { Line } from "./lines";
import type { Range } from "../control/sync";

export interface YOptions {
  /** A range chosen by a person; null uses the range of the data. */
  fixed: Range | null;
  fromZero: boolean;
  percent: boolean;
  log: boolean;
  /** Excludes the outermost 1% at both ends, and counts it. */
  clip: boolean;
  band: boolean;
}

export interface YRange {
  min: number;
  max: number;
  /** Buckets outside of the range because outliers are clipped. */
  above: number;
  below: number;
}

const PADDING = 0.06;
/** The distance between larger numbers may be infinite: such an axis is computed at a fraction of them. */
const HUGE = 1e300;
const FRACTION = 2 ** -10;
/** A narrower axis cannot be divided exactly: smaller values are drawn at zero. */
const NARROWEST = 1e-307;
/** A constant line is drawn in the middle of a range of 10% above and below. */
const FLAT = 0.1;

export function yRange(lines: readonly Line[], window: Range, options: YOptions): YRange {
  if (options.fixed) return { min: options.fixed.from, max: options.fixed.to, above: 0, below: 0 };
  const { lows, highs } = extremes(lines, window, options);
  if (lows.length === 0) {
    // No finite value in this window: use the range of the whole line.
    const isWhole = window.from === -Infinity && window.to === Infinity;
    if (!isWhole) return yRange(lines, { from: -Infinity, to: Infinity }, options);
    return { min: options.log ? 0.1 : 0, max: 1, above: 0, below: 0 };
  }
  let low = lowest(lows);
  let high = highest(highs);
  let above = 0;
  let below = 0;
  if (options.clip && lows.length >= 20) {
    const [from, to] = [quantile(lows, 0.01), quantile(highs, 0.99)];
    if (to > from) {
      above = highs.filter((value) => value > to).length;
      below = lows.filter((value) => value < from).length;
      [low, high] = [from, to];
    }
  }
  return { ...framed(low, high, options), above, below };
}

/** Number of values that a logarithmic axis cannot show. */
export function nonPositive(line: Line, window: Range): number {
  let total = 0;
  const end = firstAtLeast(line.x, window.to);
  for (let at = firstAtLeast(line.x, window.from); at < end; at += 1) if (line.value[at]! <= 0) total += 1;
  return total;
}

function extremes(
  lines: readonly Line[],
  window: Range,
  { band, log }: YOptions,
): { lows: number[]; highs: number[] } {
  const lows: number[] = [];
  const highs: number[] = [];
  for (const line of lines) {
    const end = Math.min(firstAtLeast(line.x, window.to) + 1, line.x.length);
    const banded = band && !line.plain;
    for (let at = Math.max(0, firstAtLeast(line.x, window.from) - 1); at < end; at += 1) {
      if (line.x[at]! < window.from || line.x[at]! > window.to) continue;
      const low = banded ? line.min[at]! : line.value[at]!;
      const high = banded ? line.max[at]! : line.value[at]!;
      const lowest = log && low <= 0 ? line.value[at]! : low;
      if (Number.isNaN(high) || (log && high <= 0)) continue;
      lows.push(log && lowest <= 0 ? high : lowest);
      highs.push(high);
    }
  }
  return { lows, highs };
}

/** A padded range that is finite and not empty, for any values. */
function framed(low: number, high: number, options: YOptions): { min: number; max: number } {
  const most = Math.max(Math.abs(low), Math.abs(high));
  if (!options.log && most > 0 && most < NARROWEST)
    return { min: low < 0 ? -NARROWEST : 0, max: high > 0 ? NARROWEST : 0 };
  const scale = most > HUGE && !options.log ? FRACTION : 1;
  const { min, max } = padded(low * scale, high * scale, options);
  const finite = (end: number): number => Math.min(Math.max(end, -Number.MAX_VALUE), Number.MAX_VALUE);
  return { min: finite(min / scale), max: finite(max / scale) };
}

function padded(
  low: number,
  high: number,
  { log, fromZero, percent }: YOptions,
): { min: number; max: number } {
  if (log) {
    const factor = Math.max(10 ** ((Math.log10(high) - Math.log10(low)) * PADDING), 1.15);
    return { min: Math.max(low / factor, Number.MIN_VALUE), max: high * factor };
  }
  if (percent && low >= 0) return { min: 0, max: Math.max(1, high * (1 + PADDING)) };
  if (low === high && low === 0) return { min: 0, max: 1 };
  if (low === high && !fromZero)
    return { min: low - Math.abs(low) * FLAT, max: high + Math.abs(high) * FLAT };
  const zero = fromZero || (low >= 0 && low < (high - low) * 0.1);
  const from = zero ? Math.min(0, low) : low;
  const to = zero ? Math.max(0, high) : high;
  const span = to - from;
  return {
    min: zero && low >= 0 ? 0 : from - span * PADDING,
    max: zero && high <= 0 ? 0 : to + span * PADDING,
  };
}

function quantile(values: readonly number[], share: number): number {
  const sorted = Float64Array.from(values).sort();
  return sorted[Math.round((sorted.length - 1) * share)]!;
}

function lowest(values: readonly number[]): number {
  return values.reduce((low, value) => (value < low ? value : low));
}

function highest(values: readonly number[]): number {
  return values.reduce((high, value) => (value > high ? value : high));
}
