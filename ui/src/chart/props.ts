// The properties of the chart components.

import type { ChartSpec, EventMark, Heatmap, HistogramBar, StepBar } from "../data/types";
import type { Grouped } from "./series/run_groups";
import type { ChartSync, Range } from "./control/sync";

export interface OverlaidRun {
  id: string;
  name: string;
  colour: string;
}

/** Pins charts to the overview. */
export interface ChartPins {
  /** Why pinning is not available; null if it is. */
  whyNot: string | null;
  has(keys: string[]): boolean;
  toggle(spec: ChartSpec): void;
}

export interface ChartProps {
  run: string;
  title: string;
  /** Its title in lists with charts of other sections. */
  longTitle?: string;
  keys: string[];
  unit?: string;
  kind?: "line" | "stack" | "band";
  secondAxis?: string[];
  /** The unit of the second axis; by default that of its first key. */
  secondUnit?: string;
  percent?: boolean;
  fromZero?: boolean;
  per?: "rank" | "device" | "host" | "none";
  height?: number;
  sync?: ChartSync;
  events?: EventMark[];
  /** Overlays several runs, one colour each, instead of `run`. */
  runs?: OverlaidRun[];
  /** Draws one line for the runs of each group: their mean, with a band of their spread. */
  grouped?: Grouped | null;
  /** Without legend and menu, for small multiples. */
  compact?: boolean;
  /** Keys that are never smoothed, from the catalogue. */
  noSmoothing?: string[];
  pins?: ChartPins;
  testid?: string;
}

export interface EventLaneProps {
  events: EventMark[];
  /** Number of all events of each kind, where `events` is a sample. */
  counts?: Record<string, number>;
  sync: ChartSync;
  height?: number;
  /** Called with the events under a mark that was clicked. */
  onpick?: (events: EventMark[]) => void;
  testid?: string;
}

export interface OverviewBrushProps {
  run: string;
  /** The series drawn small: usually the loss or the step time. */
  keyName: string;
  sync: ChartSync;
  height?: number;
  testid?: string;
}

export interface SparklineProps {
  values: (number | null)[];
  width?: number;
  height?: number;
  colour?: string;
  label?: string;
}

export interface HistogramProps {
  bins: HistogramBar[];
  unit?: string;
  title: string;
  marks?: { label: string; value: number }[];
  height?: number;
  testid?: string;
}

export interface HeatmapProps {
  heatmap: Heatmap;
  title: string;
  sync?: ChartSync;
  height?: number;
  onpick?: (where: { rank: number; start: number }) => void;
  /** Names of rows that are not ranks; x is then in units of the page's axis. */
  rows?: string[];
  /** The position of a column as text. */
  where?: (start: number, width: number) => string;
  /** The labels of positions along x. */
  ticks?: (places: number[]) => string[];
  testid?: string;
}

export interface StackBarsProps {
  bars: StepBar[];
  phaseOrder: string[];
  title: string;
  height?: number;
  /** Each bar fills the height: shares instead of seconds. */
  share?: boolean;
  selected?: number | null;
  onpick?: (step: number) => void;
  onzoom?: (range: Range) => void;
  testid?: string;
}
