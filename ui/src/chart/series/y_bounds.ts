// A fixed y range that a person has entered: minimum and maximum, each optional.

import { quantity, type Unit } from "../../format";
import type { YRange } from "./y_range";

export interface Bounds {
  low: number | null;
  high: number | null;
}

/** Units that a value may be entered with, and their factors. */
const SCALES: Record<string, number> = {
  "%": 0.01,
  ns: 1e-9,
  us: 1e-6,
  µs: 1e-6,
  ms: 1e-3,
  s: 1,
  min: 60,
  h: 3600,
  kB: 1e3,
  MB: 1e6,
  GB: 1e9,
  TB: 1e12,
  KiB: 2 ** 10,
  MiB: 2 ** 20,
  GiB: 2 ** 30,
  TiB: 2 ** 40,
};
const VALUE = /^([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)\s*(\D*)$/i;

/** Parses two texts as bounds; returns a message if they are not valid. */
export function boundsOf(lowText: string, highText: string, log: boolean): Bounds | string {
  const bounds = { low: valueOf(lowText), high: valueOf(highText) };
  for (const [name, text] of [["low", lowText] as const, ["high", highText] as const])
    if (Number.isNaN(bounds[name])) return `“${text}” is not a number. Enter one such as 0.5, 1e-3 or 16 GiB.`;
  const { low, high } = bounds;
  if (log && [low, high].some((end) => end !== null && end <= 0))
    return "A logarithmic axis needs values above zero.";
  if (low !== null && high !== null && low >= high) return "The minimum must be below the maximum.";
  return bounds;
}

/** Null for an empty text, NaN for an invalid number. */
function valueOf(text: string): number | null {
  if (text.trim() === "") return null;
  const [, digits, unit] = VALUE.exec(text.trim()) ?? [];
  const scale = unit === "" ? 1 : (SCALES[unit ?? ""] ?? NaN);
  const value = Number(digits) * scale;
  return Number.isFinite(value) ? Number(value.toPrecision(15)) : NaN;
}

/** The range of the data, limited or extended to the bounds. */
export function within(range: YRange, { low, high }: Bounds, log: boolean): YRange {
  const usable = (end: number | null): end is number => end !== null && (!log || end > 0);
  const min = usable(low) ? low : range.min;
  const max = usable(high) ? high : range.max;
  if (min < max) return { ...range, min, max };
  // All values are beyond the one bound that is set: the other end moves.
  const away = log ? 10 : Math.abs(usable(low) ? min : max) || 1;
  if (usable(low)) return { ...range, min, max: log ? min * away : min + away };
  return { ...range, min: log ? max / away : max - away, max };
}

/** The bounds as text, for the chart's head. */
export function boundsText({ low, high }: Bounds, unit: Unit): string {
  if (low === null) return `y ≤ ${quantity(high, unit)}`;
  return high === null
    ? `y ≥ ${quantity(low, unit)}`
    : `y ${quantity(low, unit)} – ${quantity(high, unit)}`;
}
