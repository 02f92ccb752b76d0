// Stacks phases, always in the same order.

import { toX, toY, type Frame } from "../drawing/plot_frame";
import { isGapBefore } from "./gaps";
import type { Line } from "./lines";
import { NOT_TIMED, phaseColour } from "../drawing/theme";
import { firstAtLeast } from "./source";
import type { Canvas } from "../drawing/svg_canvas";
import type { Range } from "../control/sync";

/** A line with its position in the stack; all layers share one x. */
export interface Layer {
  line: Line;
  x: Float64Array;
  bottom: Float64Array;
  top: Float64Array;
}

/** The time of whole steps. In a stack it stands for what the phases leave of it. */
export const WHOLE = "step_seconds";

/** A smaller part of all steps is not worth a layer. */
const MIN_REST = 0.01;

/** Replaces the lines of whole steps by the time that no phase has: phases may be timed in some steps only. */
export function withRest(lines: readonly Line[]): Line[] {
  const parts = lines.filter((line) => line.key !== WHOLE);
  const timed = new Map<number, number>();
  for (const { x, value } of parts.filter((line) => !line.superseded))
    x.forEach((at, bucket) => timed.set(at, (timed.get(at) ?? 0) + (value[bucket]! || 0)));
  const wholes = lines.filter((line) => line.key === WHOLE && !line.superseded);
  const rests = wholes.map((line) => restOf(line, timed));
  return sumOf(rests) > MIN_REST * sumOf(wholes) ? [...parts, ...rests] : parts;
}

function restOf(line: Line, timed: ReadonlyMap<number, number>): Line {
  const value = line.value.map((seconds, at) => Math.max(0, seconds - (timed.get(line.x[at]!) ?? 0)));
  const unknown = new Float64Array(value.length).fill(NaN);
  return {
    ...line,
    label: NOT_TIMED,
    origin: NOT_TIMED,
    colour: phaseColour(NOT_TIMED) ?? line.colour,
    dash: [],
    smoothed: null,
    value,
    min: unknown,
    max: unknown,
  };
}

function sumOf(lines: readonly Line[]): number {
  return lines.reduce((sum, { value }) => sum + value.reduce((all, seconds) => all + (seconds || 0), 0), 0);
}

/** Stacks lines, the first at the bottom; with `share` each x adds up to 1. */
export function stack(lines: readonly Line[], share: boolean): Layer[] {
  const standing = lines.filter((line) => !line.superseded);
  const x = Float64Array.from(new Set(standing.flatMap((line) => [...line.x]))).sort();
  const sums = new Float64Array(x.length);
  const values = standing.map((line) => spreadOver(x, line));
  const totals = x.map((_, at) => values.reduce((total, column) => total + (column[at] || 0), 0));
  const known = x.map((_, at) => (values.some((column) => !Number.isNaN(column[at]!)) ? 1 : NaN));
  return standing.map((line, layer) => {
    const bottom = sums.slice();
    for (let at = 0; at < x.length; at += 1) {
      const part = values[layer]![at] || 0;
      sums[at]! += share ? (totals[at]! > 0 ? part / totals[at]! : 0) : part;
    }
    return { line, x, bottom, top: sums.map((sum, at) => sum * known[at]!) };
  });
}

/** The maximum height of the stack in the window. */
export function stackHeight(layers: readonly Layer[], window: Range): number {
  const last = layers[layers.length - 1];
  if (!last) return 1;
  let height = 0;
  const end = Math.min(last.x.length, firstAtLeast(last.x, window.to) + 1);
  for (let at = Math.max(0, firstAtLeast(last.x, window.from) - 1); at < end; at += 1) {
    if (last.top[at]! > height) height = last.top[at]!;
  }
  return height || 1;
}

export function paintStack(
  context: Canvas,
  frame: Frame,
  layers: readonly Layer[],
  group: string | null,
): void {
  context.save();
  context.beginPath();
  context.rect(frame.left, frame.top, frame.width, frame.height);
  context.clip();
  for (const layer of layers) {
    const faded = group !== null && group !== layer.line.group && !layer.line.pinned;
    context.globalAlpha = faded ? 0.3 : 0.88;
    context.fillStyle = layer.line.colour;
    paintLayer(context, frame, layer);
  }
  context.restore();
}

function paintLayer(context: Canvas, frame: Frame, { x, bottom, top, line }: Layer): void {
  const from = Math.max(0, firstAtLeast(x, frame.x.min) - 1);
  const to = Math.min(x.length, firstAtLeast(x, frame.x.max) + 1);
  let begin = from;
  for (let at = from; at <= to; at += 1) {
    if (at < to && at !== begin && !isGapBefore(x, top, at, line.width)) continue;
    if (at > begin && !Number.isNaN(top[begin]!)) {
      context.beginPath();
      for (let bucket = begin; bucket < at; bucket += 1)
        context.lineTo(toX(frame, x[bucket]!), toY(frame, top[bucket]!));
      for (let bucket = at - 1; bucket >= begin; bucket -= 1)
        context.lineTo(toX(frame, x[bucket]!), toY(frame, bottom[bucket]!));
      context.closePath();
      context.fill();
    }
    begin = at;
  }
}

function spreadOver(x: Float64Array, line: Line): Float64Array {
  const values = new Float64Array(x.length).fill(NaN);
  let at = 0;
  for (let bucket = 0; bucket < line.x.length; bucket += 1) {
    while (x[at]! < line.x[bucket]!) at += 1;
    values[at] = line.value[bucket]!;
  }
  return values;
}
