// Exposes what is drawn to tests and developers: `window.__stepscope`.

import type { LiveStream } from "../../data/live";
import type { Line } from "../series/lines";
import type { ChartSync } from "./sync";

export interface ShownLine {
  label: string;
  key: string;
  run: string;
  superseded: boolean;
  x: number[];
  value: number[];
  smoothed: number[] | null;
  min: number[];
  max: number[];
  count: number[];
  nonfinite: number[];
  width: number;
}

export interface ShownChart {
  series(): ShownLine[];
  window(): { from: number; to: number } | null;
  state(): string;
}

export interface Shown {
  charts: Map<string, ShownChart>;
  stream: LiveStream | null;
  sync: ChartSync | null;
}

declare global {
  interface Window {
    __stepscope?: Shown;
  }
}

export function shown(): Shown {
  window.__stepscope ??= { charts: new Map(), stream: null, sync: null };
  return window.__stepscope;
}

export function shownLine(line: Line): ShownLine {
  const { label, key, run, superseded, width } = line;
  const columns = {
    x: line.x,
    value: line.value,
    min: line.min,
    max: line.max,
    count: line.count,
    nonfinite: line.nonfinite,
  };
  const lists = Object.fromEntries(
    Object.entries(columns).map(([name, column]) => [name, [...column]]),
  ) as Record<keyof typeof columns, number[]>;
  return {
    label,
    key,
    run,
    superseded,
    width,
    smoothed: line.smoothed ? [...line.smoothed] : null,
    ...lists,
  };
}
