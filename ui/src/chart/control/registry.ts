// Shows browser tests what is drawn, as `window.__stepscope`; left out of the page that is shipped.

import type { LiveStream } from "../../data/live";
import type { Line } from "../series/lines";
import type { ChartController } from "./controller";
import type { ChartSync } from "./sync";

interface ShownLine {
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

interface ShownChart {
  series(): ShownLine[];
  window(): { from: number; to: number } | null;
  state(): string;
}

interface Shown {
  charts: Map<string, ShownChart>;
  stream: LiveStream | null;
  sync: ChartSync | null;
}

declare global {
  interface Window {
    __stepscope?: Shown;
  }
}

function shown(): Shown {
  window.__stepscope ??= { charts: new Map(), stream: null, sync: null };
  return window.__stepscope;
}

function shownLine(line: Line): ShownLine {
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

/** Registers a chart; returns what removes it again. */
export function register(name: string, chart: ChartController, sync: ChartSync): () => void {
  shown().charts.set(name, {
    series: () => chart.shownLines.map(shownLine),
    window: () => chart.window,
    state: () => chart.data.state,
  });
  Object.assign(shown(), { sync, stream: sync.stream });
  return () => shown().charts.delete(name);
}
