// The state of a chart that the page shows beside its canvas.

import type { Spread } from "../../data/grouping";
import type { SeriesAxis } from "../../data/types";
import type { Frame } from "../drawing/plot_frame";
import { grainOf, nonfiniteText, outsideText, summaryOf } from "../summary";
import type { Area, ChartView, Pointing, ChartListener } from "./chart_listener";

const SUMMARY_AGAIN_MS = 5000;
const NOTICE_MS = 4000;
const NOTHING = "No data yet.";

interface Measure {
  axis: SeriesAxis;
  unit: string | undefined;
  /** The meaning of the band of grouped runs; absent without grouping. */
  spread: Spread | undefined;
}

export class ChartState {
  view = $state.raw<ChartView | null>(null);
  pointing = $state.raw<Pointing | null>(null);
  selection = $state.raw<Area | null>(null);
  frame = $state.raw<Frame | null>(null);
  /** Why no line is drawn although values were logged. */
  nonfinite = $derived(this.view && nonfiniteText(this.view.lines));
  /** A sentence that describes the chart. */
  summary = $state(NOTHING);
  /** How many points are drawn, and in which buckets. */
  grain = $state("");
  /** The last action, for a few seconds. */
  notice = $state("");
  #summarised = 0;

  constructor(private readonly measure: () => Measure) {}

  /** Why the window shows nothing. */
  get outside(): string | null {
    return this.view && outsideText(this.view.lines, this.view.window, this.measure().axis);
  }

  /** The callbacks for a chart; the crosshair bypasses the framework, since it moves with the pointer. */
  listener(crosshair: ChartListener["crosshair"]): ChartListener {
    return {
      drawn: (view) => this.#drawn(view),
      pointing: (now) => (this.pointing = now),
      select: (area) => (this.selection = area),
      framed: (frame) => (this.frame = frame),
      crosshair,
    };
  }

  clear(): void {
    this.view = null;
    this.pointing = null;
    this.frame = null;
  }

  say(text: string): void {
    this.notice = text;
    setTimeout(() => (this.notice = this.notice === text ? "" : this.notice), NOTICE_MS);
  }

  #drawn(view: ChartView): void {
    this.view = view;
    if (performance.now() - this.#summarised < SUMMARY_AGAIN_MS && this.summary !== NOTHING) return;
    this.#summarised = performance.now();
    const { axis, unit, spread } = this.measure();
    this.grain = grainOf(view.lines, axis, spread);
    const standing = view.lines.filter((line) => !line.superseded);
    this.summary = summaryOf(
      standing.map((line) => ({ ...line, axis })),
      unit,
    );
  }
}
