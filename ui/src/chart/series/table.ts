// The data of a chart as a table.

import type { Line } from "./lines";
import { firstAtLeast } from "./source";
import type { Range } from "../control/sync";

export interface TableRow {
  x: number;
  /** By line; null where a line has no value. */
  values: (number | null)[];
}

export interface Table {
  columns: string[];
  /** The axis each column belongs to. */
  scales: ("y" | "y2")[];
  rows: TableRow[];
  /** Number of all x positions; more than there are rows if the table is thinned. */
  places: number;
}

export const MAX_ROWS = 200;

export function tableOf(lines: readonly Line[], window: Range): Table {
  const shown = lines.filter((line) => !line.superseded);
  const groups = [...new Map(shown.map((line) => [line.group, line]))];
  const cells = new Map<number, (number | null)[]>();
  for (const line of shown) {
    const column = groups.findIndex(([group]) => group === line.group);
    const to = firstAtLeast(line.x, window.to);
    for (
      let at = firstAtLeast(line.x, window.from);
      at < line.x.length && (at < to || line.x[at] === window.to);
      at += 1
    ) {
      const row = cells.get(line.x[at]!) ?? groups.map(() => null);
      row[column] = line.value[at]!;
      cells.set(line.x[at]!, row);
    }
  }
  const all = [...cells].sort(([a], [b]) => a - b);
  const stride = Math.max(1, Math.ceil(all.length / MAX_ROWS));
  const kept = all.filter((_, at) => at % stride === 0 || at === all.length - 1);
  return {
    columns: groups.map(([, line]) => line.label),
    scales: groups.map(([, line]) => line.scale),
    rows: kept.map(([x, values]) => ({ x, values })),
    places: all.length,
  };
}
