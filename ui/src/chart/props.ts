// What the chart components take.

import type { ChartSpec, EventMark, Heatmap, HistogramBin, StepBar } from "../data/types";
import type { Grouped } from "./series/run_groups";
import type { ChartSync, Range } from "./control/sync";

export interface OverlaidRun {
  id: string;
  name: string;
  colour: string;
}

/** Where charts can be pinned, so that they are found again in one place. */
export interface ChartPins {
  /** Why nothing can be pinned; null where it can. */
  whyNot: string | null;
  has(keys: string[]): boolean;
  toggle(spec: ChartSpec): void;
}

export interface ChartProps {
  run: string;
  title: string;
  /** Its title where it stands among charts of other sections. */
  longTitle?: string;
  keys: string[];
  unit?: string;
  kind?: "line" | "stack" | "band";
  secondAxis?: string[];
  /** Of the second axis; by the name of its first key where it is not said. */
  secondUnit?: string;
  percent?: boolean;
  fromZero?: boolean;
  per?: "rank" | "device" | "host" | "none";
  height?: number;
  sync?: ChartSync;
  events?: EventMark[];
  /** Overlays several runs, one colour each, instead of `run` alone. */
  runs?: OverlaidRun[];
  /** Draws one line for the runs of each group: their mean, with a band of how far they lie apart. */
  grouped?: Grouped | null;
  /** Without legend and menu, for small multiples. */
  compact?: boolean;
  /** Keys that smoothing leaves alone, as the catalogue says. */
  noSmoothing?: string[];
  pins?: ChartPins;
  testid?: string;
}

export interface EventLaneProps {
  events: EventMark[];
  /** How many there are of each kind, where not all of them are given. */
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
  bins: HistogramBin[];
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
  /** What rows are called that are no ranks; x is then in units of the page's axis. */
  rows?: string[];
  /** Where a column lies, in words. */
  where?: (start: number, width: number) => string;
  /** What stands below places along x. */
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
