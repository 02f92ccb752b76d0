// What a person prefers, kept in this browser.

import { USUAL_UNITS, useUnits, type Units } from "../format";

const PLACE = "stepscope.preferences";

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
  units: USUAL_UNITS,
  axis: "step",
  smoothing: 0,
  columns: [],
  projectSmoothing: {},
  folded: {},
};

function kept(): Preferences {
  try {
    const found = JSON.parse(localStorage.getItem(PLACE) ?? "{}") as Partial<Preferences>;
    return { ...DEFAULTS, ...found, units: { ...USUAL_UNITS, ...found.units } };
  } catch {
    return { ...DEFAULTS };
  }
}

/** The preferences; a change is kept at once by `prefer`. */
export const preferences = $state(kept());
useUnits(() => preferences.units);

/** Changes preferences and keeps them. A browser that keeps nothing still has them until the page is left. */
export function prefer(changes: Partial<Preferences>): void {
  Object.assign(preferences, changes);
  try {
    localStorage.setItem(PLACE, JSON.stringify(preferences));
  } catch {
    return;
  }
}

/** Whether a part of a page is folded away, by its name. */
export function isFolded(name: string, otherwise = false): boolean {
  return preferences.folded[name] ?? otherwise;
}

/** Folds a part of a page away, or back. */
export function fold(name: string, folded: boolean): void {
  prefer({ folded: { ...preferences.folded, [name]: folded } });
}
