// Finds the values at the crosshair.

import { toX, toY, type Frame } from "../drawing/plot_frame";
import type { Layer } from "./stack";
import type { Line } from "./lines";
import { firstAtLeast } from "./source";

export interface Reading {
  group: string;
  label: string;
  colour: string;
  dash: number[];
  superseded: boolean;
  pinned: boolean;
  x: number;
  time: number;
  /** The value of the bucket: exact where it holds one point, else its mean. */
  value: number;
  smoothed: number | null;
  min: number;
  max: number;
  count: number;
  nonfinite: number;
  /** Its value at the baseline; null without one. */
  base: number | null;
  /** In a stack: its share of the total. */
  share: number | null;
  scale: "y" | "y2";
  key: string;
  /** How many steps or seconds its bucket covers. */
  width: number;
  /** Device pixels from the pointer; 0 without one. */
  distance: number;
  y: number;
}

export const MAX_READINGS = 12;
const REACH_PIXELS = 24;

/** The index of the bucket nearest to x; -1 where none is close enough. */
export function bucketAt(frame: Frame, line: Line, x: number): number {
  const after = firstAtLeast(line.x, x);
  const before = after - 1;
  const nearer =
    after >= line.x.length || (before >= 0 && x - line.x[before]! <= line.x[after]! - x) ? before : after;
  if (nearer < 0) return -1;
  const pixels = Math.abs(toX(frame, line.x[nearer]!) - toX(frame, x));
  const between = before >= 0 && after < line.x.length;
  return pixels <= REACH_PIXELS * frame.ratio || (between && pixels <= frame.width / 8) ? nearer : -1;
}

/**
 * The readings at x: pinned lines and the nearest are chosen, then pinned ones come first and the others by value.
 * `pointerY` is in device pixels.
 */
export function readingsAt(
  frame: Frame,
  lines: readonly Line[],
  x: number,
  pointerY: number | null,
  layers: readonly Layer[] | null = null,
): Reading[] {
  const readings: Reading[] = [];
  for (const line of lines) {
    const at = bucketAt(frame, line, x);
    if (at < 0 || (Number.isNaN(line.value[at]!) && !line.nonfinite[at]!)) continue;
    readings.push(readingOf(frame, line, at, pointerY, layers));
  }
  const nearest = readings
    .sort((a, b) => first(a, b) || a.distance - b.distance)
    .slice(0, MAX_READINGS);
  if (layers) {
    const order = layers.map((layer) => layer.line.group);
    return nearest.sort((a, b) => order.indexOf(b.group) - order.indexOf(a.group));
  }
  return nearest.sort((a, b) => first(a, b) || (b.value || 0) - (a.value || 0));
}

/** Sorts pinned readings first. */
function first(a: Reading, b: Reading): number {
  return Number(b.pinned) - Number(a.pinned);
}

function readingOf(
  frame: Frame,
  line: Line,
  at: number,
  pointerY: number | null,
  layers: readonly Layer[] | null,
): Reading {
  const smoothed = line.smoothed ? line.smoothed[at]! : null;
  const layer = layers?.find((candidate) => candidate.line === line);
  const inLayer = layer ? firstAtLeast(layer.x, line.x[at]!) : -1;
  const whole = layers?.length ? sumAt(layers, line.x[at]!) : 0;
  const y = layer
    ? toY(frame, (layer.top[inLayer]! + layer.bottom[inLayer]!) / 2)
    : toY(frame, smoothed ?? line.value[at]!, line.scale);
  const distance = pointerY === null || Number.isNaN(y) ? 0 : Math.abs(y - pointerY);
  return {
    group: line.group,
    label: line.label,
    colour: line.colour,
    dash: line.dash,
    superseded: line.superseded,
    pinned: line.pinned,
    x: line.x[at]!,
    time: line.time[at]!,
    value: line.value[at]!,
    smoothed,
    min: line.min[at]!,
    max: line.max[at]!,
    count: line.count[at]!,
    nonfinite: line.nonfinite[at]!,
    base: null,
    share: layer && whole > 0 ? line.value[at]! / whole : null,
    scale: line.scale,
    key: line.key,
    width: line.width,
    distance,
    y,
  };
}

function sumAt(layers: readonly Layer[], x: number): number {
  return layers.reduce((total, { line }) => {
    const at = firstAtLeast(line.x, x);
    return line.x[at] === x && !Number.isNaN(line.value[at]!) ? total + line.value[at]! : total;
  }, 0);
}
