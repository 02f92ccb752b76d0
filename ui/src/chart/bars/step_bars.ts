// Computes and draws one bar for each step, with its phases stacked.

import { quantity, ticksOf } from "../../format";
import type { StepBar } from "../../data/types";
import { roundTicks } from "../drawing/scale_ticks";
import { AXIS_LEFT, fontOf } from "../drawing/style";
import { NOT_TIMED, phaseColour, strokeOf, type Theme } from "../drawing/theme";

export interface BarLayout {
  left: number;
  right: number;
  top: number;
  bottom: number;
  barWidth: number;
  /** The end of the axis. */
  most: number;
  /** Number of bars that are longer than the axis. */
  beyond: number;
}

const BOTTOM = 22;
/** A bar this many times longer than nearly all others is cut, so that the others stay visible. */
const FAR = 6;
const ROOM_ABOVE = 3;
const NEARLY_ALL = 0.9;

export function layoutBars(
  bars: readonly StepBar[],
  width: number,
  height: number,
  share: boolean,
): BarLayout {
  const right = Math.max(AXIS_LEFT + 1, width - 8);
  const seconds = bars.map((bar) => bar.seconds).sort((a, b) => a - b);
  const longest = Math.max(1e-12, seconds.at(-1) ?? 0);
  const usual = seconds[Math.floor((seconds.length - 1) * NEARLY_ALL)] ?? longest;
  const isCut = !share && usual > 0 && longest > FAR * usual;
  const most = share ? 1 : isCut ? ROOM_ABOVE * usual : longest * 1.05;
  return {
    beyond: isCut ? seconds.filter((value) => value > most).length : 0,
    left: AXIS_LEFT,
    right,
    top: 8,
    bottom: height - BOTTOM,
    barWidth: (right - AXIS_LEFT) / Math.max(1, bars.length),
    most,
  };
}

/** The bar at a position; -1 outside of the bars. */
export function barAt(layout: BarLayout, count: number, x: number): number {
  const at = Math.floor((x - layout.left) / layout.barWidth);
  return at >= 0 && at < count ? at : -1;
}

export function phaseFill(phase: string, order: readonly string[], colours: Theme): string {
  return phaseColour(phase, colours) ?? strokeOf(Math.max(0, order.indexOf(phase)), colours).colour;
}

export interface BarChoice {
  share: boolean;
  hovered: number;
  selected: number | null;
}

export function paintBars(
  context: CanvasRenderingContext2D,
  bars: readonly StepBar[],
  order: readonly string[],
  layout: BarLayout,
  choice: BarChoice,
  colours: Theme,
): void {
  paintAxis(context, layout, choice.share, colours);
  const gap = layout.barWidth > 4 ? 1 : 0;
  bars.forEach((bar, at) => {
    const x = layout.left + at * layout.barWidth;
    let y = layout.bottom;
    const unit =
      (layout.bottom - layout.top) / layout.most / (choice.share ? Math.max(bar.seconds, 1e-12) : 1);
    context.globalAlpha = choice.hovered < 0 || choice.hovered === at ? 1 : 0.75;
    const width = Math.max(layout.barWidth - gap, 0.6);
    const pile = (seconds: number, colour: string): void => {
      const above = Math.max(layout.top, y - seconds * unit);
      context.fillStyle = colour;
      context.fillRect(x, above, width, y - above);
      y = above;
    };
    for (const phase of order) pile(bar.phases[phase] ?? 0, phaseFill(phase, order, colours));
    if (!hasPhases(bar)) pile(bar.seconds, phaseFill(NOT_TIMED, order, colours));
    context.globalAlpha = 1;
    if (layout.beyond && bar.seconds > layout.most) paintArrow(context, x + width / 2, colours.warn);
    if (bar.marks.length) {
      context.fillStyle = colours.bad;
      context.fillRect(x, layout.bottom + 1, Math.max(layout.barWidth - gap, 2), 3);
    }
    if (bar.step === choice.selected) {
      context.strokeStyle = colours.text;
      context.strokeRect(x - 0.5, layout.top, layout.barWidth, layout.bottom - layout.top);
    }
  });
  paintSteps(context, bars, layout, colours);
}

/** Phases are timed at only some steps where timing all would cost too much. */
export function hasPhases(bar: StepBar): boolean {
  return Object.values(bar.phases).some((seconds) => seconds > 0);
}

/** Marks a bar that continues beyond the top of the axis. */
function paintArrow(context: CanvasRenderingContext2D, x: number, colour: string): void {
  context.fillStyle = colour;
  context.beginPath();
  context.moveTo(x, 0);
  context.lineTo(x + 4, 6);
  context.lineTo(x - 4, 6);
  context.closePath();
  context.fill();
}

function paintAxis(
  context: CanvasRenderingContext2D,
  layout: BarLayout,
  share: boolean,
  { grid, axis, font }: Theme,
): void {
  const ticks = roundTicks(0, layout.most, 5);
  const labels = ticksOf(ticks, share ? "ratio" : "seconds");
  context.font = fontOf("axis", font);
  context.textAlign = "right";
  context.textBaseline = "middle";
  ticks.forEach((tick, at) => {
    const y = layout.bottom - (tick / layout.most) * (layout.bottom - layout.top);
    context.fillStyle = grid;
    context.fillRect(layout.left, Math.round(y), layout.right - layout.left, 1);
    context.fillStyle = axis;
    context.fillText(labels[at]!, layout.left - 6, y);
  });
}

function paintSteps(
  context: CanvasRenderingContext2D,
  bars: readonly StepBar[],
  layout: BarLayout,
  { axis }: Theme,
): void {
  context.fillStyle = axis;
  context.textAlign = "center";
  context.textBaseline = "alphabetic";
  const minimum = 80 / layout.barWidth;
  const stride = [1, 2, 5, 10, 20, 50, 100, 200].find((count) => count >= minimum) ?? 400;
  for (let at = 0; at < bars.length; at += stride) {
    const x = layout.left + (at + 0.5) * layout.barWidth;
    if (x > layout.right - 16 && at > 0) break;
    context.fillText(
      bars[at]!.step.toLocaleString("en-US"),
      Math.max(x, layout.left + 8),
      layout.bottom + 17,
    );
  }
}

/** The description of a bar. */
export function barText(bar: StepBar, order: readonly string[]): string {
  const phases = order
    .filter((phase) => (bar.phases[phase] ?? 0) > 0)
    .map((phase) => `${phase} ${quantity(bar.phases[phase]!, "seconds")}`);
  const marks = bar.marks.length ? ` · ${bar.marks.join(", ")}` : "";
  const step = bar.step.toLocaleString("en-US");
  const parts = phases.length ? ` (${phases.join(", ")})` : "";
  return `Step ${step}: ${quantity(bar.seconds, "seconds")}${parts}${marks}`;
}
