// Formats numbers for tiles, axes, tooltips and tables.

import type { Unit } from "./unit";
import { byteScale, degrees, degreeSign, units } from "./units";

const UNKNOWN = "–";

/** A number with significant digits, with a prefix from a million on and an exponent below 0.001.
 * The server formats numbers by the same rules; tests of both use the same examples. */
export function number(value: number | null | undefined, digits = 4): string {
  if (value === null || value === undefined) return UNKNOWN;
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  return signed(value, (size) => plain(size, digits));
}

/** A whole number with separators. */
export function count(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return number(value);
  return signed(value, (size) => Math.round(size).toLocaleString("en-US"));
}

/** Bytes, in prefixes of 1024 or of 1000. */
export function bytes(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return number(value);
  const { base, names } = byteScale();
  return signed(value, (size) => scaled(size, base, names));
}

/** A ratio as percent. */
export function percent(ratio: number | null | undefined): string {
  if (ratio === null || ratio === undefined || !Number.isFinite(ratio)) return number(ratio);
  return signed(ratio * 100, (size) => `${percentDigits(size)}%`);
}

function percentDigits(size: number): string {
  if (size === 0) return "0";
  if (size < 0.1) return trim(size.toPrecision(1));
  return size < 9.95 ? trim(size.toFixed(1)) : Math.round(size).toLocaleString("en-US");
}

/** Seconds, from nanoseconds to days. */
export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return number(seconds);
  return signed(seconds, positiveDuration);
}

function positiveDuration(seconds: number): string {
  if (seconds === 0) return "0 s";
  if (seconds < 60) return scaled(seconds, 1000, ["s", "ms", "µs", "ns"], true);
  const whole = Math.round(seconds);
  const days = Math.floor(whole / 86400);
  const hours = Math.floor((whole % 86400) / 3600);
  const minutes = Math.floor((whole % 3600) / 60);
  if (units().durations === "clock") {
    const long = days ? `${days} d ` : "";
    return `${long}${days ? two(hours) : hours}:${two(minutes)}:${two(whole % 60)}`;
  }
  if (days) return hours ? `${days} d ${two(hours)} h` : `${days} d`;
  if (hours) return minutes ? `${hours} h ${two(minutes)} min` : `${hours} h`;
  return whole % 60 ? `${minutes} min ${two(whole % 60)} s` : `${minutes} min`;
}

/** A value with its unit, as tiles, tooltips and tables write it. */
export function quantity(value: number | null | undefined, unit: Unit = ""): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return number(value);
  switch (unit) {
    case "seconds":
      return duration(value);
    case "bytes":
      return bytes(value);
    case "bytes/s":
      return `${bytes(value)}/s`;
    case "ratio":
      return percent(value);
    case "%":
      return `${number(value)}%`;
    case "celsius":
      return `${number(degrees(value), 3)} ${degreeSign()}`;
    case "watts":
      return prefixed(value, "W");
    case "joules":
      return prefixed(value, "J");
    case "hertz":
      return prefixed(value, "Hz");
    case "/s":
      return `${number(value)}/s`;
    case "count":
      return count(value);
    case "":
      return number(value);
    default:
      return `${number(value)} ${unit}`;
  }
}

const SIZES = /(\d[\d.,]*) (B|KiB|MiB|GiB|TiB)\b/g;
const DEGREES = /(-?\d[\d.,]*) °C/g;

/** A text of the server in the preferred units; temperatures in it are never differences. */
export function inUnits(text: string): string {
  const { memory, temperature } = units();
  if (memory === "decimal")
    text = text.replace(SIZES, (_, size: string, name: string) =>
      bytes(Number(size.replaceAll(",", "")) * 1024 ** ["B", "KiB", "MiB", "GiB", "TiB"].indexOf(name)),
    );
  if (temperature === "fahrenheit")
    text = text.replace(DEGREES, (_, size: string) => quantity(Number(size.replaceAll(",", "")), "celsius"));
  return text;
}

/** The time since a moment, as text. */
export function ago(time: number, now: number): string {
  const seconds = now - time;
  return seconds < 1 ? "now" : `${duration(seconds < 60 ? Math.round(seconds) : seconds)} ago`;
}

/** A time of day, with the date unless it is today. */
export function clock(time: number, now: number = Date.now() / 1000): string {
  const [day, moment] = dayAndMoment(time);
  return day === dayAndMoment(now)[0] ? moment : `${day} ${moment}`;
}

/** The date and the time of day in the local time zone. */
export function dayAndMoment(time: number): [string, string] {
  const date = new Date(time * 1000);
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return [day, `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`];
}

function two(value: number): string {
  return String(value).padStart(2, "0");
}

function signed(value: number, write: (size: number) => string): string {
  const text = write(Math.abs(value));
  return value < 0 && /[1-9]/.test(text) ? `−${text}` : text;
}

function trim(text: string): string {
  return text.includes(".") && !text.includes("e") ? text.replace(/\.?0+$/, "") : text;
}

function plain(size: number, digits: number): string {
  if (size === 0) return "0";
  const near = Number(size.toPrecision(digits));
  if (near >= 1e15 || size < 1e-3) return size.toExponential(digits - 2).replace(/\.?0*e\+?/, "e");
  if (near >= 1e6) return scaled(size / 1e6, 1000, ["M", "G", "T"]).replace(" ", "");
  if (Number.isInteger(size)) return size.toLocaleString("en-US");
  return near.toLocaleString("en-US", { maximumFractionDigits: 12 });
}

/** Three digits with the prefix that gives 1–999 (or 1–1023); `down` uses smaller units. */
function scaled(size: number, base: number, units: string[], down = false): string {
  if (size === 0) return `0 ${units[0]}`;
  let at = 0;
  let scaledSize = size;
  while (at < units.length - 1 && (down ? rounded(scaledSize) < 1 : rounded(scaledSize) >= base)) {
    scaledSize = down ? scaledSize * base : scaledSize / base;
    at += 1;
  }
  return `${trim(String(rounded(scaledSize)))} ${units[at]}`;
}

function rounded(value: number): number {
  return value >= 100 ? Math.round(value) : Number(value.toPrecision(3));
}

function prefixed(value: number, unit: string): string {
  return signed(value, (size) =>
    size === 0 || size < 1e3
      ? `${plain(size, 3)} ${unit}`
      : scaled(size, 1000, ["", "k", "M", "G", "T"]) + unit,
  );
}
