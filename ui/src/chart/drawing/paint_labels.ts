// Writes the name of each line at its end, moved apart where names would overlap.

import { toX, toY, type Frame } from "./plot_frame";
import { inSight } from "./paint";
import type { Line } from "../series/lines";
import type { Canvas } from "./svg_canvas";
import { fontOf } from "./style";
import type { Theme } from "./theme";

export const MAX_LABELS = 6;
const HEIGHT = 14;

export interface EndLabel {
  text: string;
  colour: string;
  y: number;
}

/** Moves labels until none overlaps another, keeping their order, within top and bottom. */
export function spread(labels: EndLabel[], height: number, top: number, bottom: number): EndLabel[] {
  const placed = [...labels].sort((a, b) => a.y - b.y).map((label) => ({ ...label }));
  for (let at = 0; at < placed.length; at += 1) {
    const above = at === 0 ? top - height / 2 : placed[at - 1]!.y;
    placed[at]!.y = Math.max(placed[at]!.y, above + (at === 0 ? height / 2 : height));
  }
  for (let at = placed.length - 1; at >= 0; at -= 1) {
    const below = at === placed.length - 1 ? bottom : placed[at + 1]!.y - height;
    placed[at]!.y = Math.min(placed[at]!.y, below);
  }
  return placed;
}

/** The labels at the right edge, of lines that reach it. */
export function endLabels(frame: Frame, lines: readonly Line[]): EndLabel[] {
  const labels = new Map<string, EndLabel>();
  for (const line of lines) {
    if (line.superseded) continue;
    const [from, to] = inSight(frame, line);
    const values = line.smoothed ?? line.value;
    for (let at = to - 1; at >= from; at -= 1) {
      if (Number.isNaN(values[at]!) || toX(frame, line.x[at]!) > frame.left + frame.width + 1) continue;
      labels.set(line.group, {
        text: line.label,
        colour: line.colour,
        y: toY(frame, values[at]!, line.scale),
      });
      break;
    }
  }
  return [...labels.values()];
}

export function paintLabels(
  context: Canvas,
  frame: Frame,
  lines: readonly Line[],
  { font }: Theme,
): void {
  const labels = spread(endLabels(frame, lines), HEIGHT * frame.ratio, frame.top, frame.top + frame.height);
  context.font = fontOf("label", font, frame.ratio);
  context.textAlign = "left";
  context.textBaseline = "middle";
  for (const label of labels) {
    context.fillStyle = label.colour;
    context.fillText(label.text, frame.left + frame.width + 6 * frame.ratio, label.y);
  }
}

/** The width of the labels in CSS pixels; 0 with one line, too many lines, or no room. */
export function labelRoom(
  context: CanvasRenderingContext2D,
  lines: readonly Line[],
  width: number,
  { font }: Theme,
): number {
  const texts = [...new Map(lines.map((line) => [line.group, line.label])).values()];
  if (texts.length < 2 || texts.length > MAX_LABELS || width < 420) return 0;
  context.save();
  context.font = fontOf("label", font);
  const widest = Math.max(...texts.map((text) => context.measureText(text).width));
  context.restore();
  return widest > width * 0.25 ? 0 : Math.ceil(widest) + 12;
}
