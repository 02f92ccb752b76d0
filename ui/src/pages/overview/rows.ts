// Lays charts out in rows that are all filled.

/** Columns of the page's grid. */
const COLUMNS = 12;

/** How many columns each of so many charts takes: rows differ by one chart at most, and none has a blank. */
export function spansOf(charts: number, mostInARow = 4): number[] {
  const rows = Math.ceil(charts / mostInARow);
  return Array.from({ length: rows }, (_, row) => {
    const inRow = Math.floor(charts / rows) + (row < charts % rows ? 1 : 0);
    return new Array<number>(inRow).fill(COLUMNS / inRow);
  }).flat();
}
