// The colours of charts, read from the page's CSS variables, and again when the theme changes.

import { DASHES } from "./style";

export interface Theme {
  series: string[];
  phases: Record<string, string>;
  grid: string;
  axis: string;
  text: string;
  muted: string;
  surface: string;
  bad: string;
  warn: string;
  ok: string;
  font: string;
}

export const PHASES = ["data", "transfer", "forward", "backward", "optimizer", "checkpoint", "eval", "other"];

/** The name of the time of a step that no phase has. */
export const NOT_TIMED = "phases not timed";

let current: Theme | null = null;
const listeners = new Set<() => void>();
let watching = false;

/** The current colours; read from the page once per theme. */
export function theme(): Theme {
  current ??= readTheme();
  return current;
}

/** Calls after the theme has changed; returns a function that stops it. */
export function onThemeChange(listener: () => void): () => void {
  if (!watching) watch();
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Colour and dashes of the line at this position in a chart. */
export function strokeOf(at: number, { series } = theme()): { colour: string; dash: number[] } {
  return { colour: series[at % series.length]!, dash: dashOf(at) };
}

/** The dashes of the line at this position; further keys of a run have other dashes. */
export function dashOf(at: number, key = 0): number[] {
  return DASHES[(Math.floor(at / theme().series.length) + key) % DASHES.length]!;
}

/** The fixed colour of a phase's key; null for another key. */
export function phaseColour(key: string, { phases } = theme()): string | null {
  const name = /(?:^|\/)(\w+?)(?:_wait)?_seconds$/.exec(key)?.[1] ?? key;
  return phases[name] ?? null;
}

function readTheme(): Theme {
  const style = getComputedStyle(document.documentElement);
  const token = (name: string): string => style.getPropertyValue(name).trim();
  return {
    series: [1, 2, 3, 4, 5, 6].map((at) => token(`--series-${at}`)),
    phases: {
      ...Object.fromEntries(PHASES.map((name) => [name, token(`--phase-${name}`)])),
      [NOT_TIMED]: token("--phase-not-timed"),
    },
    grid: token("--grid"),
    axis: token("--axis"),
    text: token("--text"),
    muted: token("--muted"),
    surface: token("--surface"),
    bad: token("--bad"),
    warn: token("--warn"),
    ok: token("--ok"),
    font: token("--font"),
  };
}

function watch(): void {
  watching = true;
  const changed = (): void => {
    current = null;
    for (const listener of [...listeners]) listener();
  };
  const observer = new MutationObserver(changed);
  observer.observe(document.documentElement, {
    attributes: true,
    attributeFilter: ["class", "data-theme", "data-palette", "style"],
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
}
