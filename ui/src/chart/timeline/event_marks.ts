// Places events along x and merges those that would overlap.

import type { EventMark } from "../../data/types";
import { count } from "../../format";
import type { Range } from "../control/sync";

export interface PlacedMark {
  /** Position in the window, between 0 and 1. */
  at: number;
  /** The end of a span; null for a moment. */
  end: number | null;
  glyph: string;
  /** The most important kind of its events. */
  kind: string;
  events: EventMark[];
}

/** The most important first: it gives the symbol where events share a mark. */
const GLYPHS: [RegExp, string][] = [
  [/alert|crash|failed/, "▲"],
  [/nonfinite|finding/, "!"],
  [/note/, "✎"],
  [/resume|segment|start/, "↻"],
  [/checkpoint/, "■"],
  [/eval/, "◆"],
  [/^(?!.*epoch)/, "●"],
  [/epoch/, "│"],
];

export function glyphOf(kind: string): string {
  return GLYPHS[priorityOf(kind)]![1];
}

function priorityOf(kind: string): number {
  return GLYPHS.findIndex(([pattern]) => pattern.test(kind));
}

/** The marks in the window; moments closer than `apart` share a mark, spans have their own. */
export function placeEvents(
  events: readonly EventMark[],
  window: Range,
  xOf: (event: { step: number | null; time: number | null }) => number | null,
  apart: number,
): PlacedMark[] {
  const span = window.to - window.from;
  if (!(span > 0)) return [];
  const placed: PlacedMark[] = [];
  let before: PlacedMark | null = null;
  const located = events.flatMap((event) => {
    const x = xOf(event);
    return x === null ? [] : [{ event, at: (x - window.from) / span }];
  });
  for (const { event, at } of located.sort((a, b) => a.at - b.at)) {
    const endX = event.end_time === null ? null : xOf({ step: null, time: event.end_time });
    const end = endX === null ? null : (endX - window.from) / span;
    // What happens after the last step of a run has the step that would be next.
    if ((end ?? at) < 0 || at > 1 + 1 / span) continue;
    if (before && end === null && at - before.at < apart) {
      join(before, event);
      continue;
    }
    const mark: PlacedMark = {
      at: Math.min(1, Math.max(0, at)),
      end: end === null ? null : Math.min(1, end),
      glyph: glyphOf(event.kind),
      kind: event.kind,
      events: [event],
    };
    placed.push(mark);
    if (end === null) before = mark;
  }
  return placed;
}

function join(mark: PlacedMark, event: EventMark): void {
  mark.events.push(event);
  if (priorityOf(event.kind) >= priorityOf(mark.kind)) return;
  [mark.kind, mark.glyph] = [event.kind, glyphOf(event.kind)];
}

/** Number of events of each kind, and how many of them are drawn if not all. */
export function summaryOf(events: readonly EventMark[], counts: Record<string, number> = {}): string {
  if (events.length === 0) return "No events.";
  const drawn = new Map<string, number>();
  for (const { kind } of events) drawn.set(kind, (drawn.get(kind) ?? 0) + 1);
  const texts = [...drawn].map(([kind, some]) => {
    const all = Math.max(counts[kind] ?? some, some);
    return `${kind} × ${count(all)}${all > some ? ` (${count(some)} drawn)` : ""}`;
  });
  return texts.join(" · ");
}

/** The other events of a mark, by kind: `2 epoch, 1 checkpoint`; empty for a single event. */
export function othersOf({ events, kind }: PlacedMark): string {
  const counts = new Map<string, number>();
  for (const event of events) counts.set(event.kind, (counts.get(event.kind) ?? 0) + 1);
  counts.set(kind, counts.get(kind)! - 1);
  return [...counts]
    .filter(([, count]) => count > 0)
    .map(([name, count]) => `${count} ${name}`)
    .join(", ");
}
