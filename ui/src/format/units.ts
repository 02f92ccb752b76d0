// The preferred units. Numbers are in base units everywhere; only formatting converts them.

export interface Units {
  /** GiB (1024³ bytes) or GB (10⁹ bytes). */
  memory: "iec" | "decimal";
  temperature: "celsius" | "fahrenheit";
  /** `1 h 12 min`, or `1:12:00` as a clock shows it. */
  durations: "named" | "clock";
}

export const DEFAULT_UNITS: Units = { memory: "iec", temperature: "celsius", durations: "named" };

let source: () => Units = () => DEFAULT_UNITS;

/** Sets where the formatter reads the units, at each call: reactive callers format again after a change. */
export function useUnits(read: () => Units): void {
  source = read;
}

export function units(): Units {
  return source();
}

const IEC = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const DECIMAL = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];

export function byteScale(): { base: number; names: string[] } {
  return units().memory === "iec" ? { base: 1024, names: IEC } : { base: 1000, names: DECIMAL };
}

/** A temperature in the preferred unit. */
export function degrees(celsius: number): number {
  return units().temperature === "celsius" ? celsius : celsius * 1.8 + 32;
}

export function degreeSign(): string {
  return units().temperature === "celsius" ? "°C" : "°F";
}
