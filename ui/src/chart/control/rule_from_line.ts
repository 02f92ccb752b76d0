// Writes the rule that a line across a chart stands for.

import { keyInCondition } from "../../data/condition";
import type { Unit } from "../../format";
import type { Line } from "../series/lines";

const MAX_IN_NAME = 100;

/** What is to be told: that the key passes a value which its last one has not passed yet. */
export function ruleAt(
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

/** A value as a person would write it in a condition: shares in percent, many bytes in MiB or GiB. */
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

/** A value with no more digits than can be told apart, where `apart` is what one pixel stands for. */
export function roundedTo(value: number, apart: number): number {
  if (!(apart > 0) || !Number.isFinite(value)) return value;
  const digits = -Math.floor(Math.log10(apart));
  const factor = 10 ** Math.abs(digits);
  const rounded = digits >= 0 ? Math.round(value * factor) / factor : Math.round(value / factor) * factor;
  return Number(rounded.toPrecision(12));
}
