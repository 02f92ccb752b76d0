// The units a reader prefers. Numbers are kept in base units everywhere; only the last step, writing, asks.

export interface Units {
  /** GiB (1024³ bytes) or GB (10⁹ bytes). */
  memory: "iec" | "decimal";
  temperature: "celsius" | "fahrenheit";
  /** `1 h 12 min`, or `1:12:00` as a clock shows it. */
  durations: "named" | "clock";
}

export const USUAL_UNITS: Units = { memory: "iec", temperature: "celsius", durations: "named" };

let ask: () => Units = () => USUAL_UNITS;

/** Has the formatter ask here, each time it writes: what was written is written anew where that is noticed. */
export function useUnits(source: () => Units): void {
  ask = source;
}

export function units(): Units {
  return ask();
}

const IEC = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const DECIMAL = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];

export function byteScale(): { base: number; names: string[] } {
  return units().memory === "iec" ? { base: 1024, names: IEC } : { base: 1000, names: DECIMAL };
}

/** Degrees as they are shown, and their sign. */
export function degrees(celsius: number): number {
  return units().temperature === "celsius" ? celsius : celsius * 1.8 + 32;
}

export function degreeSign(): string {
  return units().temperature === "celsius" ? "°C" : "°F";
}
