// Converts between values and canvas positions by arithmetic only, without reading the page's layout.

import type { Range } from "../control/sync";

export interface Projection {
  min: number;
  max: number;
  log: boolean;
}

/** The plot within its canvas, in device pixels, and its scales. */
export interface Frame {
  left: number;
  top: number;
  width: number;
  height: number;
  /** Device pixels for each CSS pixel. */
  ratio: number;
  x: Projection;
  y: Projection;
  y2: Projection | null;
}

export function toX(frame: Frame, x: number): number {
  return frame.left + share(frame.x, x) * frame.width;
}

export function toY(frame: Frame, y: number, scale: "y" | "y2" = "y"): number {
  const projection = (scale === "y2" ? frame.y2 : null) ?? frame.y;
  return frame.top + (1 - share(projection, y)) * frame.height;
}

export function xAt(frame: Frame, pixel: number): number {
  return valueAt(frame.x, (pixel - frame.left) / frame.width);
}

export function yAt(frame: Frame, pixel: number, scale: "y" | "y2" = "y"): number {
  const projection = (scale === "y2" ? frame.y2 : null) ?? frame.y;
  return valueAt(projection, 1 - (pixel - frame.top) / frame.height);
}

export function windowOf(frame: Frame): Range {
  return { from: frame.x.min, to: frame.x.max };
}

function share({ min, max, log }: Projection, value: number): number {
  // In halves: the distance between the largest numbers would be infinite.
  if (!log && max - min === Infinity) return (value / 2 - min / 2) / (max / 2 - min / 2);
  if (!log) return (value - min) / (max - min);
  // Values without a logarithm are drawn at the bottom.
  return value <= 0 ? 0 : (Math.log10(value) - Math.log10(min)) / (Math.log10(max) - Math.log10(min));
}

function valueAt({ min, max, log }: Projection, part: number): number {
  if (!log && max - min === Infinity) return min * (1 - part) + max * part;
  if (!log) return min + (max - min) * part;
  return 10 ** (Math.log10(min) + (Math.log10(max) - Math.log10(min)) * part);
}
