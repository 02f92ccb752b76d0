// Decides where a line is interrupted: gaps in the data stay gaps in the chart.

const GAP_FACTOR = 10;

/**
 * Whether there is a gap between a bucket and the one before it: no value, or a distance ten times that of both
 * neighbours. A change of the logging rate is not a gap.
 */
export function isGapBefore(
  x: ArrayLike<number>,
  value: ArrayLike<number>,
  at: number,
  width: number,
): boolean {
  if (at === 0 || Number.isNaN(value[at]!) || Number.isNaN(value[at - 1]!)) return true;
  const distance = x[at]! - x[at - 1]!;
  if (distance <= 4 * width) return false;
  const before = at >= 2 ? x[at - 1]! - x[at - 2]! : NaN;
  const after = at + 1 < x.length ? x[at + 1]! - x[at]! : NaN;
  const usual = Math.max(Number.isNaN(before) ? 0 : before, Number.isNaN(after) ? 0 : after);
  return usual > 0 && distance > GAP_FACTOR * usual;
}
