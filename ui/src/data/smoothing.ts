// Smooths lines for display; stored values and alerts are not affected.
//
// Every kind measures distance in x, not in points, so that series with different logging rates are smoothed
// equally. `reference` is the distance that counts as one point, the same for all lines of a chart.

export type SmoothingKind = "ema" | "mean" | "gaussian" | "min" | "max";
export const SMOOTHING_KINDS: SmoothingKind[] = ["ema", "mean", "gaussian", "min", "max"];

/** `amount` 0 is none, 0.999 the strongest. */
export interface Smoothing {
  kind: SmoothingKind;
  amount: number;
}

export const NO_SMOOTHING: Smoothing = { kind: "ema", amount: 0 };
export const MAX_SMOOTHING = 0.999;

/** Keys with meaningful jumps: schedules, counters, epochs. The catalogue may name more. */
const NEVER = /(^|[/_.])(lr|learning_rate|epoch|epochs|global_step)($|[/_.-])|_total$/i;

export function mayBeSmoothed(key: string, noSmoothing: readonly string[] = []): boolean {
  return !NEVER.test(key) && !noSmoothing.includes(key);
}

/**
 * The distance that counts as one point: that of the densest line, but at least a thousandth of the range.
 * `count` is the number of buckets of the whole line: finer buckets of a zoomed part do not change the curve.
 */
export function referenceDistance(lines: readonly { x: ArrayLike<number>; count: number }[]): number {
  let low = Infinity;
  let high = -Infinity;
  let densest = Infinity;
  for (const { x, count } of lines) {
    if (x.length < 2 || count < 2) continue;
    const first = x[0]!;
    const last = x[x.length - 1]!;
    low = Math.min(low, first);
    high = Math.max(high, last);
    densest = Math.min(densest, (last - first) / (count - 1));
  }
  return high > low ? Math.max(densest, (high - low) / 1000) : 1;
}

/** The smoothed values; NaN where a value is not finite. */
export function smooth(
  x: ArrayLike<number>,
  y: ArrayLike<number>,
  smoothing: Smoothing,
  reference: number,
): Float64Array {
  const amount = Math.min(Math.max(smoothing.amount, 0), MAX_SMOOTHING);
  if (amount === 0) return Float64Array.from(y);
  const radius = (reference * amount) / (1 - amount);
  switch (smoothing.kind) {
    case "ema":
      return movingAverage(x, y, amount, reference);
    case "mean":
      return centredMean(x, y, radius);
    case "gaussian":
      return gaussian(x, y, radius);
    case "min":
      return runningExtreme(x, y, 2 * radius, -1);
    case "max":
      return runningExtreme(x, y, 2 * radius, 1);
  }
}

/** A bias-corrected exponential average: divided by the sum of the weights. */
function movingAverage(
  x: ArrayLike<number>,
  y: ArrayLike<number>,
  amount: number,
  reference: number,
): Float64Array {
  const result = new Float64Array(y.length).fill(NaN);
  let total = 0;
  let weight = 0;
  let before = NaN;
  for (let at = 0; at < y.length; at += 1) {
    if (!Number.isFinite(y[at]!)) continue;
    const decay = Number.isNaN(before) ? 0 : amount ** (Math.max(x[at]! - before, 0) / reference);
    // The weight of a point grows with its distance from the previous one, as if it filled the gap.
    const share = Number.isNaN(before) ? 1 - amount : 1 - decay;
    total = total * decay + y[at]! * share;
    weight = weight * decay + share;
    result[at] = weight > 0 ? total / weight : y[at]!;
    before = x[at]!;
  }
  return result;
}

function centredMean(x: ArrayLike<number>, y: ArrayLike<number>, radius: number): Float64Array {
  const result = new Float64Array(y.length).fill(NaN);
  const totals = new Float64Array(y.length + 1);
  const counts = new Float64Array(y.length + 1);
  for (let at = 0; at < y.length; at += 1) {
    const finite = Number.isFinite(y[at]!);
    totals[at + 1] = totals[at]! + (finite ? y[at]! : 0);
    counts[at + 1] = counts[at]! + (finite ? 1 : 0);
  }
  let low = 0;
  let high = 0;
  for (let at = 0; at < y.length; at += 1) {
    // Near an end the window shrinks on both sides, so that the curve is not biased towards the middle.
    const reach = Math.min(radius, x[at]! - x[0]!, x[x.length - 1]! - x[at]!);
    while (x[low]! < x[at]! - reach) low += 1;
    while (low > 0 && x[low - 1]! >= x[at]! - reach) low -= 1;
    while (high < y.length && x[high]! <= x[at]! + reach) high += 1;
    while (high > at + 1 && x[high - 1]! > x[at]! + reach) high -= 1;
    const count = counts[high]! - counts[low]!;
    if (Number.isFinite(y[at]!) && count > 0) result[at] = (totals[high]! - totals[low]!) / count;
  }
  return result;
}

/** Three centred means in a row approximate a Gaussian within a few percent, at constant cost. */
function gaussian(x: ArrayLike<number>, y: ArrayLike<number>, radius: number): Float64Array {
  const once = centredMean(x, y, radius / Math.SQRT2);
  return centredMean(x, centredMean(x, once, radius / Math.SQRT2), radius / Math.SQRT2);
}

/** The minimum (`sign` -1) or maximum (1) of the window that ends at each point. */
function runningExtreme(
  x: ArrayLike<number>,
  y: ArrayLike<number>,
  span: number,
  sign: 1 | -1,
): Float64Array {
  const result = new Float64Array(y.length).fill(NaN);
  const candidates: number[] = [];
  let head = 0;
  for (let at = 0; at < y.length; at += 1) {
    if (!Number.isFinite(y[at]!)) continue;
    while (candidates.length > head && sign * y[candidates[candidates.length - 1]!]! <= sign * y[at]!)
      candidates.pop();
    candidates.push(at);
    while (x[candidates[head]!]! < x[at]! - span) head += 1;
    result[at] = y[candidates[head]!]!;
  }
  return result;
}
