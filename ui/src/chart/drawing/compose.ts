// Composes what a plot draws: lines, ranges of the axes, positions of marks.

import type { EventMark } from "../../data/types";
import type { Unit } from "../../format";
import { within, type Bounds } from "../series/y_bounds";
import type { Line, LineOptions } from "../series/lines";
import type { Mark, Picture, PlotStyle } from "./plot";
import { stack, stackHeight } from "../series/stack";
import type { ChartSync, Range } from "../control/sync";
import { thinned } from "../timeline/thin_events";
import { yRange, type YOptions, type YRange } from "../series/y_range";

/** The settings of a chart from the page; all may change. */
export interface ChartSettings extends LineOptions {
  run: string;
  kind: "line" | "stack" | "band";
  unit: Unit;
  secondUnit: Unit | null;
  percent: boolean;
  fromZero: boolean;
  height: number;
  compact: boolean;
  events: EventMark[];
  /** Options a person chose in this chart only. */
  logY: boolean | null;
  share: boolean;
  bounds: Bounds | null;
  hidden: ReadonlySet<string>;
}

const MAX_MARKS = 24;

/** The state of this chart only. */
export interface Chosen {
  window: Range;
  /** Width of the plot in CSS pixels. */
  width: number;
  yFixed: Range | null;
  group: string | null;
}

export interface Composed {
  picture: Picture;
  style: PlotStyle;
  above: number;
  below: number;
}

export function compose(settings: ChartSettings, sync: ChartSync, lines: Line[], chosen: Chosen): Composed {
  const { band, clip, axis } = sync.state;
  const stacked = settings.kind === "stack";
  const logY = !stacked && (settings.logY ?? sync.state.logY);
  const logX = sync.state.logX && sync.storedAxis === "step";
  const from = logX ? Math.max(chosen.window.from, 1) : chosen.window.from;
  const window = { from, to: chosen.window.to > from ? chosen.window.to : from + 1 };
  const options: YOptions = {
    fixed: chosen.yFixed,
    fromZero: settings.fromZero,
    percent: settings.percent,
    log: logY,
    clip,
    band,
  };
  const layers = stacked ? stack(lines, settings.share) : null;
  const top = layers && (settings.share ? 1 : stackHeight(layers, window) * 1.06);
  const reached: YRange = top
    ? { min: chosen.yFixed?.from ?? 0, max: chosen.yFixed?.to ?? top, above: 0, below: 0 }
    : yRange(
        lines.filter((line) => line.scale === "y"),
        window,
        options,
      );
  const isTyped = settings.bounds !== null && !stacked && chosen.yFixed === null;
  const y = isTyped ? within(reached, settings.bounds!, logY) : reached;
  const second = settings.secondUnit === null ? null : lines.filter((line) => line.scale === "y2");
  return {
    picture: {
      lines,
      layers,
      window,
      y,
      y2: second && yRange(second, window, { ...options, fixed: null, log: false, percent: false }),
      marks: marksOf(settings, sync, { ...window, log: logX, width: chosen.width }),
      emphasis: { group: chosen.group, band: band || settings.kind === "band" },
      labels: !settings.compact && !stacked && second === null,
    },
    style: {
      axis,
      unit: stacked && settings.share ? "ratio" : settings.unit,
      secondUnit: settings.secondUnit,
      logX,
      logY,
      compact: settings.compact,
    },
    above: y.above,
    below: y.below,
  };
}

/**
 * The marks in the window. Epochs are thinned; any other kind that is too frequent would hide the lines and is
 * shown in the event lane only.
 */
function marksOf(
  { events, run }: ChartSettings,
  sync: ChartSync,
  { from, to, log, width }: Range & { log: boolean; width: number },
): Mark[] {
  const byKind = new Map<string, Mark[]>();
  for (const { kind, step, time } of events) {
    const x = sync.xOf({ step, time }, run);
    if (x !== null) byKind.set(kind, [...(byKind.get(kind) ?? []), { x, tone: toneOf(kind) }]);
  }
  const along = (x: number): number => (log ? Math.log10(Math.max(x, 1e-300)) : x);
  const pixels = ({ x }: Mark): number => ((along(x) - along(from)) / (along(to) - along(from))) * width;
  const base = sync.baseline && sync.xOf(sync.baseline, run);
  const marks: Mark[] = base === null || base < from || base > to ? [] : [{ x: base, tone: "text" }];
  const others = [...byKind].flatMap(([kind, ofKind]) => {
    if (kind === "epoch") return thinned(ofKind, pixels, width);
    const inside = ofKind.filter(({ x }) => x >= from && x <= to);
    return inside.length <= MAX_MARKS ? inside : [];
  });
  return [...marks, ...others];
}

/** The emphasis of an event, by its kind. */
export function toneOf(kind: string): Mark["tone"] {
  if (/alert|crash|failed|nonfinite/.test(kind)) return "bad";
  return /throttl|stall|warning/.test(kind) ? "warn" : "muted";
}
