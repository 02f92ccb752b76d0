// Dragging in the overview: selects a window, moves it, or moves one of its ends.

import type { Range } from "../control/sync";

export type Grip = "new" | "move" | "from" | "to";
const HANDLE = 8;

/** The part of the window at a position; both are in pixels. */
export function gripAt(x: number, window: Range | null, width: number): Grip {
  if (!window || (window.from <= 0 && window.to >= width)) return "new";
  if (Math.abs(x - window.from) <= HANDLE) return "from";
  if (Math.abs(x - window.to) <= HANDLE) return "to";
  return x > window.from && x < window.to ? "move" : "new";
}

/** The window after dragging from one position to another, within the whole range. */
export function dragged(grip: Grip, window: Range, from: number, to: number, width: number): Range {
  const clamp = (x: number): number => Math.min(width, Math.max(0, x));
  switch (grip) {
    case "new":
      return { from: clamp(Math.min(from, to)), to: clamp(Math.max(from, to)) };
    case "from":
      return { from: Math.min(clamp(to), window.to - 1), to: window.to };
    case "to":
      return { from: window.from, to: Math.max(clamp(to), window.from + 1) };
    case "move": {
      const by = Math.min(width - window.to, Math.max(-window.from, to - from));
      return { from: window.from + by, to: window.to + by };
    }
  }
}
