// Compares the values at the crosshair with those at a baseline position.

import { clock, count, percent, quantity, type Unit } from "../../format";
import type { Line } from "./lines";
import { firstAtLeast } from "./source";
import type { ChartSync, Spot } from "../control/sync";

/** The value of each line at the baseline, by group; lines without a value there are omitted. */
export function valuesAt(lines: readonly Line[], sync: ChartSync): Map<string, number> {
  const values = new Map<string, number>();
  for (const line of lines) {
    const x = sync.baseline && sync.xOf(sync.baseline, line.run);
    if (x === null || line.superseded) continue;
    const value = valueAt(line, x);
    if (!Number.isNaN(value)) values.set(line.group, value);
  }
  return values;
}

/** The value of the last bucket that starts at or before x, or of the first if x is just before it. */
function valueAt(line: Line, x: number): number {
  const after = firstAtLeast(line.x, x);
  const at = line.x[after] === x ? after : after - 1;
  const last = line.x.length - 1;
  if (last < 0 || x < line.x[0]! - line.width || x > line.x[last]! + line.width) return NaN;
  return line.value[Math.max(0, at)]!;
}

/** The difference of two values as text: `+0.12 (+5%)`. */
export function differenceText(value: number, base: number, unit: Unit): string {
  const by = value - base;
  if (!Number.isFinite(by)) return "";
  const sign = by < 0 ? "−" : "+";
  const share = base === 0 ? "" : ` (${sign}${percent(Math.abs(by / base))})`;
  return `${sign}${quantity(Math.abs(by), unit)}${share}`;
}

/** The position of the baseline as text. */
export function baselineText({ step, time }: Spot): string {
  return step === null ? clock(time ?? 0) : `step ${count(step)}`;
}
