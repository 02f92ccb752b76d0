// Draws lines on the canvas: band, mean, single points, and marks for values that are not finite.

import { toX, toY, windowOf, type Frame } from "./plot_frame";
import { isGapBefore } from "../series/gaps";
import type { Line } from "../series/lines";
import { firstAtLeast } from "../series/source";
import type { Canvas } from "./svg_canvas";
import {
  BAND_ALPHA,
  EMPHASISED_WIDTH,
  FADED_ALPHA,
  fontOf,
  LINE_WIDTH,
  POINT_DISTANCE,
  POINT_RADIUS,
  RAW_ALPHA,
  SUPERSEDED_ALPHA,
  SUPERSEDED_DASH,
} from "./style";
import type { Theme } from "./theme";

export interface Emphasis {
  /** The group at the pointer; the others fade. */
  group: string | null;
  band: boolean;
}

export function paintLines(
  context: Canvas,
  frame: Frame,
  lines: readonly Line[],
  emphasis: Emphasis,
): void {
  context.save();
  context.beginPath();
  context.rect(frame.left, frame.top, frame.width, frame.height);
  context.clip();
  for (const line of lines)
    if (emphasis.band && !line.plain && !line.superseded)
      paintBand(context, frame, line, alphaOf(line, emphasis));
  for (const line of lines) if (line.group !== emphasis.group) paintLine(context, frame, line, emphasis);
  for (const line of lines) if (line.group === emphasis.group) paintLine(context, frame, line, emphasis);
  context.restore();
}

function alphaOf(line: Line, { group }: Emphasis): number {
  return (group === null || group === line.group || line.pinned ? 1 : FADED_ALPHA) * (line.superseded ? SUPERSEDED_ALPHA : 1);
}

/** The visible buckets and one beyond each edge, so that lines continue to the edges. */
export function inSight(frame: Frame, line: Line): [number, number] {
  const { from, to } = windowOf(frame);
  return [Math.max(0, firstAtLeast(line.x, from) - 1), Math.min(line.x.length, firstAtLeast(line.x, to) + 1)];
}

function paintBand(context: Canvas, frame: Frame, line: Line, alpha: number): void {
  if (line.exact) return;
  const [from, to] = inSight(frame, line);
  context.globalAlpha = alpha * BAND_ALPHA;
  context.fillStyle = line.colour;
  let begin = from;
  for (let at = from; at <= to; at += 1) {
    if (at < to && at !== begin && !isGapBefore(line.x, line.mean, at, line.width)) continue;
    if (at > begin + 1) fillBetween(context, frame, line, begin, at);
    begin = at;
  }
  context.globalAlpha = 1;
}

function fillBetween(
  context: Canvas,
  frame: Frame,
  line: Line,
  from: number,
  to: number,
): void {
  context.beginPath();
  for (let at = from; at < to; at += 1)
    context.lineTo(toX(frame, line.x[at]!), toY(frame, line.max[at]!, line.scale));
  for (let at = to - 1; at >= from; at -= 1)
    context.lineTo(toX(frame, line.x[at]!), toY(frame, line.min[at]!, line.scale));
  context.closePath();
  context.fill();
}

function paintLine(context: Canvas, frame: Frame, line: Line, emphasis: Emphasis): void {
  const alpha = alphaOf(line, emphasis);
  const thick = emphasis.group === line.group ? EMPHASISED_WIDTH : LINE_WIDTH;
  context.strokeStyle = line.colour;
  context.fillStyle = line.colour;
  context.lineJoin = "round";
  context.setLineDash((line.superseded ? SUPERSEDED_DASH : line.dash).map((length) => length * frame.ratio));
  if (line.smoothed) {
    context.globalAlpha = alpha * RAW_ALPHA;
    context.lineWidth = frame.ratio;
    strokeThrough(context, frame, line, line.value);
  }
  context.globalAlpha = alpha;
  context.lineWidth = thick * frame.ratio;
  strokeThrough(context, frame, line, line.smoothed ?? line.value);
  context.setLineDash([]);
  paintPoints(context, frame, line);
  context.globalAlpha = 1;
}

function strokeThrough(
  context: Canvas,
  frame: Frame,
  line: Line,
  values: Float64Array,
): void {
  const [from, to] = inSight(frame, line);
  context.beginPath();
  for (let at = from; at < to; at += 1) {
    const value = values[at]!;
    if (Number.isNaN(value)) continue;
    const x = toX(frame, line.x[at]!);
    const y = toY(frame, value, line.scale);
    if (at === from || isGapBefore(line.x, values, at, line.width)) context.moveTo(x, y);
    else context.lineTo(x, y);
  }
  context.stroke();
}

/** Dots where points are far apart, and for a point without a neighbour. */
function paintPoints(context: Canvas, frame: Frame, line: Line): void {
  const [from, to] = inSight(frame, line);
  const pixels = to > from ? toX(frame, line.x[to - 1]!) - toX(frame, line.x[from]!) : 0;
  const sparse = pixels > 0 && pixels >= (to - from - 1) * POINT_DISTANCE * frame.ratio;
  const radius = POINT_RADIUS * frame.ratio;
  for (let at = from; at < to; at += 1) {
    const value = line.value[at]!;
    if (Number.isNaN(value)) continue;
    const alone =
      isGapBefore(line.x, line.value, at, line.width) &&
      (at + 1 >= line.x.length || isGapBefore(line.x, line.value, at + 1, line.width));
    if (!sparse && !alone) continue;
    context.beginPath();
    context.arc(toX(frame, line.x[at]!), toY(frame, value, line.scale), radius, 0, 2 * Math.PI);
    context.fill();
  }
}

/** Triangles at the top edge for values that are not finite, at the bottom for values without a logarithm. */
export function paintMarks(
  context: Canvas,
  frame: Frame,
  lines: readonly Line[],
  { bad, warn, font }: Theme,
): void {
  const size = 4.5 * frame.ratio;
  const notFinite: Stretch[] = [];
  const onFloor: Stretch[] = [];
  for (const line of lines) {
    const log = ((line.scale === "y2" ? frame.y2 : null) ?? frame.y).log;
    addStretches(notFinite, frame, line, (at) => line.nonfinite[at]!);
    if (log) addStretches(onFloor, frame, line, (at) => (line.value[at]! <= 0 ? 1 : 0));
  }
  context.font = fontOf("mark", font, frame.ratio);
  context.textAlign = "center";
  paintTriangles(context, notFinite, frame.top + size, size, bad, frame);
  paintTriangles(context, onFloor, frame.top + frame.height - size, -size, warn, frame);
}

/** Consecutive buckets with something to mark, in device pixels. */
interface Stretch {
  from: number;
  to: number;
  count: number;
}

function addStretches(
  stretches: Stretch[],
  frame: Frame,
  line: Line,
  countAt: (at: number) => number,
): void {
  const [begin, end] = inSight(frame, line);
  let open: Stretch | null = null;
  for (let at = begin; at < end; at += 1) {
    const x = toX(frame, line.x[at]!);
    const count = x < frame.left - 1 || x > frame.left + frame.width + 1 ? 0 : countAt(at);
    if (!count) open = null;
    else if (open) [open.to, open.count] = [x, open.count + count];
    else stretches.push((open = { from: x, to: x, count }));
  }
}

function paintTriangles(
  context: Canvas,
  stretches: readonly Stretch[],
  y: number,
  size: number,
  colour: string,
  frame: Frame,
): void {
  context.fillStyle = colour;
  const half = Math.abs(size);
  // Marks at an edge are drawn inside: axis labels are outside.
  const inside = (x: number): number =>
    Math.min(Math.max(x, frame.left + half), frame.left + frame.width - half);
  let labelled = -Infinity;
  for (const { from, to, count } of joined(stretches, 2 * half)) {
    const [begin, end] = [inside(from), inside(to)];
    context.beginPath();
    context.moveTo(begin, y - size);
    context.lineTo(begin + half, y + size);
    context.lineTo(begin - half, y + size);
    context.closePath();
    context.fill();
    if (end > begin + 2 * half) {
      context.beginPath();
      context.rect(begin, y - half, end - begin, half);
      context.fill();
    }
    if (count > 1 && begin - labelled > 24 * frame.ratio) {
      context.textBaseline = size > 0 ? "top" : "bottom";
      context.fillText(count.toLocaleString("en-US"), Math.max(begin, frame.left + 2 * half), y + size * 1.4);
      labelled = end;
    }
  }
}

/** Merges stretches that would overlap, into one triangle. */
function joined(stretches: readonly Stretch[], apart: number): Stretch[] {
  const merged: Stretch[] = [];
  for (const { from, to, count } of [...stretches].sort((a, b) => a.from - b.from)) {
    const last = merged.at(-1);
    if (last && from - last.to <= apart) [last.to, last.count] = [Math.max(last.to, to), last.count + count];
    else merged.push({ from, to, count });
  }
  return merged;
}
