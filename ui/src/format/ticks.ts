// Labels of an axis: one unit for all, and just enough decimals to distinguish neighbours.

import { dayAndMoment, duration, quantity } from "./quantity";
import type { Unit } from "./unit";
import { byteScale, degrees, degreeSign, units } from "./units";

interface Scale {
  factor: number;
  suffix: string;
}

const SECONDS: Scale[] = [
  { factor: 1e-9, suffix: " ns" },
  { factor: 1e-6, suffix: " µs" },
  { factor: 1e-3, suffix: " ms" },
  { factor: 1, suffix: " s" },
];
const PLAIN: Scale[] = ["", "k", "M", "G", "T"].map((suffix, at) => ({ factor: 1000 ** at, suffix }));
const UNIT_SIGNS: Record<string, string> = { "/s": "/s", "%": "%" };
const PREFIXED: Record<string, string> = { watts: "W", joules: "J", hertz: "Hz" };
const LONG_SECONDS = 120;

/** The labels of ticks at these positions of a linear axis. */
export function ticksOf(values: readonly number[], unit: Unit): string[] {
  const largest = Math.max(0, ...values.map(Math.abs));
  const distance = minDistance(values) || largest || 1;
  if (unit === "celsius") {
    const shown = values.map(degrees);
    return shown.map((value) => `${fixed(value, minDistance(shown) || 1)} ${degreeSign()}`);
  }
  if (unit === "ratio") return values.map((value) => `${fixed(value * 100, distance * 100)}%`);
  if (unit === "seconds" && largest >= LONG_SECONDS) return values.map(duration);
  const { factor, suffix } = scaleFor(unit, largest);
  if (unit === "" && ((largest > 0 && largest < 1e-3) || largest >= 1e15))
    return powerTicks(values, largest, distance);
  // Zero needs no unit: it is the same in all of them.
  return values.map((value) => (value === 0 ? "0" : fixed(value / factor, distance / factor) + suffix));
}

/** The labels of a logarithmic axis; each tick has its own unit. */
export function logTicksOf(values: readonly (number | null)[], unit: Unit): (string | null)[] {
  return values.map((value) => (value === null ? null : quantity(value, unit)));
}

/** The labels of a wall clock axis: the date at the start of a day, the time of day otherwise. */
export function clockTicksOf(values: readonly number[]): string[] {
  const distance = minDistance(values);
  let before = "";
  return values.map((value) => {
    const [day, moment] = dayAndMoment(value);
    const shown = distance >= 86_400 ? day.slice(5) : distance >= 60 ? moment.slice(0, 5) : moment;
    const text = day === before || distance >= 86_400 ? shown : `${shown}\n${day}`;
    before = day;
    return text;
  });
}

/** Round distances between ticks of a unit; undefined means 1, 2, 5. */
export function tickDistances(unit: Unit): number[] | undefined {
  if (unit === "bytes" || unit === "bytes/s")
    return units().memory === "iec" ? Array.from({ length: 52 }, (_, at) => 2 ** at) : undefined;
  if (unit !== "seconds" && unit !== "clock") return undefined;
  const small =
    unit === "clock"
      ? []
      : [-9, -8, -7, -6, -5, -4, -3, -2, -1].flatMap((power) =>
          [1, 2, 5].map((digit) => Number(`${digit}e${power}`)),
        );
  const minutes = [60, 120, 300, 600, 900, 1800];
  const hours = [1, 2, 3, 6, 12].map((count) => count * 3600);
  const days = [1, 2, 5, 7, 14, 30, 60, 90, 180, 365].map((count) => count * 86_400);
  return [...small, 1, 2, 5, 10, 15, 30, ...minutes, ...hours, ...days];
}

/** All labels with the same power of ten, so that they can be compared. */
function powerTicks(values: readonly number[], largest: number, distance: number): string[] {
  const power = Math.floor(Math.log10(largest));
  const unit = Number(`1e${power}`);
  return values.map((value) => (value === 0 ? "0" : `${fixed(value / unit, distance / unit)}e${power}`));
}

function scaleFor(unit: Unit, largest: number): Scale {
  switch (unit) {
    case "bytes":
      return best(byteScales(), largest);
    case "bytes/s": {
      const { factor, suffix } = best(byteScales(), largest);
      return { factor, suffix: `${suffix}/s` };
    }
    case "seconds":
      return best(SECONDS, largest);
    default: {
      const scale = largest >= 1e6 || PREFIXED[unit] ? best(PLAIN, largest) : PLAIN[0]!;
      const sign = PREFIXED[unit];
      if (sign) return { factor: scale.factor, suffix: ` ${scale.suffix}${sign}` };
      return {
        factor: scale.factor,
        suffix: scale.suffix + (UNIT_SIGNS[unit] ?? (unit && unit !== "count" ? ` ${unit}` : "")),
      };
    }
  }
}

function byteScales(): Scale[] {
  const { base, names } = byteScale();
  return names.map((name, at) => ({ factor: base ** at, suffix: ` ${name}` }));
}

function best(scales: readonly Scale[], largest: number): Scale {
  return scales.findLast((scale) => largest >= scale.factor * 0.9995) ?? scales[0]!;
}

function fixed(value: number, distance: number): string {
  const decimals = Math.min(12, Math.max(0, Math.ceil(-Math.log10(distance) - 1e-9)));
  const needed = [0, 1, 2].find((more) => isWhole(distance * 10 ** (decimals + more))) ?? 2;
  const text = Math.abs(value).toLocaleString("en-US", {
    minimumFractionDigits: decimals + needed,
    maximumFractionDigits: decimals + needed,
  });
  return value < 0 && /[1-9]/.test(text) ? `−${text}` : text;
}

function isWhole(value: number): boolean {
  return Math.abs(value - Math.round(value)) < 1e-6 * Math.max(1, Math.abs(value));
}

function minDistance(values: readonly number[]): number {
  let least = Infinity;
  for (let at = 1; at < values.length; at += 1) {
    const distance = Math.abs(values[at]! - values[at - 1]!);
    if (distance > 0) least = Math.min(least, distance);
  }
  return Number.isFinite(least) ? least : 0;
}
