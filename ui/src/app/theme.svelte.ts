// The theme: light, dark, or that of the system.

import { prefer, preferences } from "./preferences.svelte";

const systemDark = matchMedia("(prefers-color-scheme: dark)");

class Theme {
  /** The current line colours, for drawing on a canvas. */
  series = $state.raw<string[]>([]);
  systemIsDark = $state(systemDark.matches);
  isDark = $derived(preferences.theme === "dark" || (preferences.theme === "auto" && this.systemIsDark));
}

const LINES = [1, 2, 3, 4, 5, 6];

export const theme = new Theme();

/** Keeps the root element in sync with the preference and the system. Called once. */
export function applyTheme(): void {
  systemDark.addEventListener("change", (event) => {
    theme.systemIsDark = event.matches;
  });
  $effect.root(() => {
    $effect(() => {
      const root = document.documentElement;
      root.dataset.theme = theme.isDark ? "dark" : "light";
      root.dataset.palette = preferences.palette;
      const style = getComputedStyle(root);
      theme.series = LINES.map((number) => style.getPropertyValue(`--series-${number}`).trim());
    });
  });
}

/** Switches between light and dark. */
export function toggleDark(): void {
  prefer({ theme: theme.isDark ? "light" : "dark" });
}
