// Arranges charts in full rows.

/** Columns of the page's grid. */
const COLUMNS = 12;

/** The grid columns of each chart: rows differ by at most one chart, and all are full. */
export function spansOf(charts: number, maxPerRow = 4): number[] {
  const rows = Math.ceil(charts / maxPerRow);
  return Array.from({ length: rows }, (_, row) => {
    const inRow = Math.floor(charts / rows) + (row < charts % rows ? 1 : 0);
    return new Array<number>(inRow).fill(COLUMNS / inRow);
  }).flat();
}
