// A person's preferences, saved in this browser.

import { DEFAULT_UNITS, useUnits, type Units } from "../format";

const STORAGE_KEY = "stepscope.preferences";

export interface Preferences {
  theme: "auto" | "light" | "dark";
  palette: "calm" | "strong";
  keys: boolean;
  units: Units;
  axis: string;
  smoothing: number;
  columns: string[];
  projectSmoothing: Record<string, number>;
  folded: Record<string, boolean>;
}

const DEFAULTS: Preferences = {
  theme: "auto",
  palette: "calm",
  keys: true,
  units: DEFAULT_UNITS,
  axis: "step",
  smoothing: 0,
  columns: [],
  projectSmoothing: {},
  folded: {},
};

function stored(): Preferences {
  try {
    const saved = JSON.parse(localStorage.getItem(STORAGE_KEY) ?? "{}") as Partial<Preferences>;
    return { ...DEFAULTS, ...saved, units: { ...DEFAULT_UNITS, ...saved.units } };
  } catch {
    return { ...DEFAULTS };
  }
}

/** The preferences; change them with `prefer`. */
export const preferences = $state(stored());
useUnits(() => preferences.units);

/** Changes and saves preferences. Without storage they last until the page is left. */
export function prefer(changes: Partial<Preferences>): void {
  Object.assign(preferences, changes);
  try {
    localStorage.setItem(STORAGE_KEY, JSON.stringify(preferences));
  } catch {
    return;
  }
}

/** Whether a section of a page is collapsed, by its name. */
export function isFolded(name: string, otherwise = false): boolean {
  return preferences.folded[name] ?? otherwise;
}

/** Collapses or expands a section of a page. */
export function fold(name: string, folded: boolean): void {
  prefer({ folded: { ...preferences.folded, [name]: folded } });
}
