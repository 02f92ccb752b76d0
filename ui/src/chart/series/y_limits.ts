// A y range that a person has typed: least and greatest value, either of them left to the data.

import { quantity, type Unit } from "../../format";
import type { YRange } from "./y_range";

export interface Bounds {
  least: number | null;
  greatest: number | null;
}

/** Units a value may be typed with, and what they stand for. */
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

/** The bounds two texts stand for, or what is wrong with them. */
export function boundsOf(least: string, greatest: string, log: boolean): Bounds | string {
  const bounds = { least: valueOf(least), greatest: valueOf(greatest) };
  for (const [name, text] of [["least", least] as const, ["greatest", greatest] as const])
    if (Number.isNaN(bounds[name])) return `“${text}” is not a number. Enter one such as 0.5, 1e-3 or 16 GiB.`;
  const { least: low, greatest: high } = bounds;
  if (log && [low, high].some((end) => end !== null && end <= 0))
    return "A logarithmic axis needs values above zero.";
  if (low !== null && high !== null && low >= high) return "The minimum must be below the maximum.";
  return bounds;
}

/** Null for nothing, NaN for what is no number. */
function valueOf(text: string): number | null {
  if (text.trim() === "") return null;
  const [, digits, unit] = VALUE.exec(text.trim()) ?? [];
  const scale = unit === "" ? 1 : (SCALES[unit ?? ""] ?? NaN);
  const value = Number(digits) * scale;
  return Number.isFinite(value) ? Number(value.toPrecision(15)) : NaN;
}

/** The range of the data, cut or widened to what was typed. */
export function within(range: YRange, { least, greatest }: Bounds, log: boolean): YRange {
  const usable = (end: number | null): end is number => end !== null && (!log || end > 0);
  const min = usable(least) ? least : range.min;
  const max = usable(greatest) ? greatest : range.max;
  if (min < max) return { ...range, min, max };
  // All values lie beyond the one end that was typed: the other gives way.
  const away = log ? 10 : Math.abs(usable(least) ? min : max) || 1;
  if (usable(least)) return { ...range, min, max: log ? min * away : min + away };
  return { ...range, min: log ? max / away : max - away, max };
}

/** What the chart's head says of it. */
export function boundsText({ least, greatest }: Bounds, unit: Unit): string {
  if (least === null) return `y ≤ ${quantity(greatest, unit)}`;
  return greatest === null
    ? `y ≥ ${quantity(least, unit)}`
    : `y ${quantity(least, unit)} – ${quantity(greatest, unit)}`;
}
