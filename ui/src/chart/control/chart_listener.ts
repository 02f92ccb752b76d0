// The callbacks of a chart to the component that contains it.

import type { Frame } from "../drawing/plot_frame";
import type { Line } from "../series/lines";
import type { ChartData } from "../series/chart_data";
import type { Reading } from "../series/nearest";
import type { Layer } from "../series/stack";
import type { Range, Spot } from "./sync";

/** The state of a chart after each drawing. */
export interface ChartView {
  lines: Line[];
  layers: Layer[] | null;
  window: Range | null;
  state: ChartData["state"];
  problem: string;
  missing: string[];
  above: number;
  below: number;
  alone: boolean;
  yZoomed: boolean;
  /** Whether there are more places than are drawn as single lines. */
  many: boolean;
}

export interface Pointing {
  x: number;
  /** CSS pixels within the plot with its axes. */
  left: number;
  top: number;
  readings: Reading[];
  nearest: string | null;
  spot: Spot;
  pinned: boolean;
}

/** A part of the plot, in CSS pixels from the corner of the plot with its axes. */
export interface Area {
  left: number;
  top: number;
  width: number;
  height: number;
}

export interface ChartListener {
  drawn(view: ChartView): void;
  pointing(pointing: Pointing | null): void;
  select(area: Area | null): void;
  /** Moves the crosshair to CSS pixels from the left of the plot with its axes; null hides it. */
  crosshair(left: number | null): void;
  /** Position and scales of the plot, after each painting. */
  framed(frame: Frame): void;
}
