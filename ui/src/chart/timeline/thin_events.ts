// Omits lines of events that would be too close, the same ones for every position of the window.

/** CSS pixels between two lines of epochs. */
export const MIN_APART = 24;

/**
 * Every mark, or every second, fifth, tenth and so on, so that they are far enough apart. `pixels` gives the
 * position of a mark; those outside of the plot count too, so that a line stays while the window moves.
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
    // In a resumed run two of them may have the same position.
    if (isOut || place - last < MIN_APART * 0.99) return false;
    last = place;
    return true;
  });
}

/** The smallest of 1, 2, 5, 10, 20, 50 … that is not below `minimum`. */
function roundStep(minimum: number): number {
  for (let power = 1; ; power *= 10)
    for (const digit of [1, 2, 5]) if (digit * power >= minimum * 0.999) return digit * power;
}
