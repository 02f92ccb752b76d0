// Makes an alert rule from a line across a chart.

import { keyInCondition } from "../../data/condition";
import type { Unit } from "../../format";
import type { Line } from "../series/lines";

const MAX_IN_NAME = 100;

/** The rule that fires when the key passes a value that its last one has not passed yet. */
export function ruleFromLine(
  key: string,
  value: number,
  last: number,
  unit: Unit = "",
): { name: string; condition: string } {
  const isBelow = last > value;
  const limit = limitText(value, unit);
  const ending = ` ${isBelow ? "below" : "above"} ${limit}`;
  return {
    name: key.slice(0, MAX_IN_NAME - ending.length) + ending,
    condition: `${keyInCondition(key)} ${isBelow ? "<" : ">"} ${limit}`,
  };
}

/** A value as people write it in a condition: ratios in percent, many bytes in MiB or GiB. */
function limitText(value: number, unit: Unit): string {
  const short = (scaled: number): string => String(Number(scaled.toPrecision(4)));
  if (unit === "ratio") return `${short(value * 100)}%`;
  if (!unit.startsWith("bytes") || Math.abs(value) < 2 ** 20) return String(value);
  return Math.abs(value) < 2 ** 30 ? `${short(value / 2 ** 20)}MiB` : `${short(value / 2 ** 30)}GiB`;
}

/** The last value of a key, the mean of all its lines; NaN where it has none. */
export function lastValue(lines: readonly Line[], key: string): number {
  const ends = lines
    .filter((line) => line.key === key && !line.superseded)
    .map((line) => line.value.findLast((value) => !Number.isNaN(value)))
    .filter((value) => value !== undefined);
  return ends.reduce((sum, value) => sum + value, 0) / ends.length;
}

/** A value rounded to the resolution of the plot, where `apart` is the value of one pixel. */
export function roundedTo(value: number, apart: number): number {
  if (!(apart > 0) || !Number.isFinite(value)) return value;
  const digits = -Math.floor(Math.log10(apart));
  const factor = 10 ** Math.abs(digits);
  const rounded = digits >= 0 ? Math.round(value * factor) / factor : Math.round(value / factor) * factor;
  return Number(rounded.toPrecision(12));
}
