// Leaves out lines of events that would stand too close, the same ones wherever the window is.

/** CSS pixels between two lines of epochs. */
export const MIN_APART = 24;

/**
 * Every mark, or every second, fifth, tenth and so on, so that they stand far enough apart. `pixels` says where a
 * mark lies; those outside of the plot count along, so that a line stays while the window is moved.
 */
export function thinned<T>(marks: readonly T[], pixels: (mark: T) => number, width: number): T[] {
  const places = marks.map(pixels);
  const inside = places.filter((place) => place >= 0 && place <= width);
  if (inside.length === 0) return [];
  const span = Math.max(...inside) - Math.min(...inside);
  const every = roundStep((MIN_APART * (inside.length - 1)) / (span || 1));
  let last = -Infinity;
  return marks.filter((_, at) => {
    const place = places[at]!;
    const isOut = place < 0 || place > width || (at + 1) % every !== 0;
    // Where a run was resumed two of them may share a place.
    if (isOut || place - last < MIN_APART * 0.99) return false;
    last = place;
    return true;
  });
}

/** The least of 1, 2, 5, 10, 20, 50 … that is not below. */
function roundStep(least: number): number {
  for (let power = 1; ; power *= 10)
    for (const digit of [1, 2, 5]) if (digit * power >= least * 0.999) return digit * power;
}
