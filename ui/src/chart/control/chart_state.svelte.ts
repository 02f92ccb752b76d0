// What the page shows of a chart beside its canvas, as the chart tells it.

import type { Spread } from "../../data/grouping";
import type { SeriesAxis } from "../../data/types";
import type { Frame } from "../drawing/plot_area";
import { grainOf, nonfiniteText, outsideText, summaryOf } from "../summary";
import type { Area, ChartView, Pointing, Surroundings } from "./chart_host";

const SUMMARY_AGAIN_MS = 5000;
const NOTICE_MS = 4000;
const NOTHING = "No data yet.";

interface Measure {
  axis: SeriesAxis;
  unit: string | undefined;
  /** What the band of grouped runs tells; absent where runs stand alone. */
  spread: Spread | undefined;
}

export class ChartFace {
  view = $state.raw<ChartView | null>(null);
  pointing = $state.raw<Pointing | null>(null);
  selection = $state.raw<Area | null>(null);
  frame = $state.raw<Frame | null>(null);
  /** Why no line is drawn although values were logged. */
  nonfinite = $derived(this.view && nonfiniteText(this.view.lines));
  /** The picture in a sentence. */
  summary = $state(NOTHING);
  /** How much lies behind it. */
  grain = $state("");
  /** What was just done. */
  notice = $state("");
  #summarised = 0;

  constructor(private readonly measure: () => Measure) {}

  /** Why the window shows nothing. */
  get outside(): string | null {
    return this.view && outsideText(this.view.lines, this.view.window, this.measure().axis);
  }

  /** What a chart tells; where the crosshair is goes past the framework, as it moves with the pointer. */
  hear(crosshair: Surroundings["crosshair"]): Surroundings {
    return {
      drawn: (view) => this.#drawn(view),
      pointing: (now) => (this.pointing = now),
      select: (area) => (this.selection = area),
      framed: (frame) => (this.frame = frame),
      crosshair,
    };
  }

  forget(): void {
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
