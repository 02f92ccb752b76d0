// The SVG path of a sparkline: gaps stay gaps, and a single point is a dot.

export function sparkPath(
  values: readonly (number | null)[],
  width: number,
  height: number,
  inset = 1.5,
): string {
  const known = values.filter((value): value is number => value !== null && Number.isFinite(value));
  if (known.length === 0) return "";
  const low = Math.min(...known);
  const high = Math.max(...known);
  const step = values.length > 1 ? (width - 2 * inset) / (values.length - 1) : 0;
  let path = "";
  let drawing = false;
  values.forEach((value, at) => {
    if (value === null || !Number.isFinite(value)) {
      drawing = false;
      return;
    }
    const share = high > low ? (value - low) / (high - low) : 0.5;
    const place = `${round(inset + at * step)} ${round(height - inset - share * (height - 2 * inset))}`;
    const alone = !drawing && !Number.isFinite(values[at + 1] ?? NaN);
    path += drawing ? `L${place}` : `M${place}${alone ? "h.01" : ""}`;
    drawing = true;
  });
  return path;
}

function round(value: number): number {
  return Math.round(value * 100) / 100;
}
