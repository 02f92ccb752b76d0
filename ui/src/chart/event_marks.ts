// Places events along x and joins those that would lie over each other.

import type { EventMark } from "../data/types";
import type { Range } from "./sync";

export interface PlacedMark {
  /** Between 0 and 1 of the window. */
  at: number;
  /** Where a span ends; null for a moment. */
  end: number | null;
  glyph: string;
  kind: string;
  events: EventMark[];
}

const GLYPHS: [RegExp, string][] = [
  [/alert|crash|failed/, "▲"],
  [/nonfinite|finding/, "!"],
  [/epoch/, "│"],
  [/eval/, "◆"],
  [/checkpoint/, "■"],
  [/resume|segment|start/, "↻"],
  [/note/, "✎"],
];

export function glyphOf(kind: string): string {
  return GLYPHS.find(([pattern]) => pattern.test(kind))?.[1] ?? "●";
}

/** The marks in the window; events of one kind nearer to each other than `apart` share one. */
export function placeEvents(
  events: readonly EventMark[],
  window: Range,
  xOf: (event: { step: number | null; time: number | null }) => number | null,
  apart: number,
): PlacedMark[] {
  const span = window.to - window.from;
  if (!(span > 0)) return [];
  const placed: PlacedMark[] = [];
  const lastOfKind = new Map<string, PlacedMark>();
  const located = events.flatMap((event) => {
    const x = xOf(event);
    return x === null ? [] : [{ event, at: (x - window.from) / span }];
  });
  for (const { event, at } of located.sort((one, other) => one.at - other.at)) {
    const endX = event.end_time === null ? null : xOf({ step: null, time: event.end_time });
    const end = endX === null ? null : (endX - window.from) / span;
    if ((end ?? at) < 0 || at > 1) continue;
    const before = lastOfKind.get(event.kind);
    if (before && before.end === null && end === null && at - before.at < apart) {
      before.events.push(event);
      continue;
    }
    const mark: PlacedMark = {
      at: Math.max(0, at),
      end: end === null ? null : Math.min(1, end),
      glyph: glyphOf(event.kind),
      kind: event.kind,
      events: [event],
    };
    placed.push(mark);
    lastOfKind.set(event.kind, mark);
  }
  return placed;
}
