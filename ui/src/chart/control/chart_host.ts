// What a chart tells whatever it stands in.

import type { Frame } from "../drawing/plot_area";
import type { Line } from "../series/lines";
import type { ChartModel } from "../series/chart_data";
import type { Reading } from "../series/nearest";
import type { Layer } from "../series/stack";
import type { Range, Spot } from "./sync";

/** What is told to the surroundings after each drawing. */
export interface ChartView {
  lines: Line[];
  layers: Layer[] | null;
  window: Range | null;
  state: ChartModel["state"];
  problem: string;
  missing: string[];
  above: number;
  below: number;
  alone: boolean;
  yZoomed: boolean;
  /** More places than are drawn one by one. */
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

/** A piece of the plot, in CSS pixels from the corner of the plot with its axes. */
export interface Area {
  left: number;
  top: number;
  width: number;
  height: number;
}

export interface Surroundings {
  drawn(view: ChartView): void;
  pointing(pointing: Pointing | null): void;
  select(area: Area | null): void;
  /** Moves the crosshair to CSS pixels from the left of the plot with its axes; null hides it. */
  crosshair(left: number | null): void;
  /** Where the plot lies and how far it reaches, after each painting. */
  framed(frame: Frame): void;
}
