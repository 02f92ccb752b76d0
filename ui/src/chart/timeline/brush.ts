// What dragging in the overview means: a new window, the window moved, or one of its ends.

import type { Range } from "../control/sync";

export type Grip = "new" | "move" | "from" | "to";
const HANDLE = 8;

/** What lies under a place, in pixels; `window` is in pixels too. */
export function gripAt(x: number, window: Range | null, width: number): Grip {
  if (!window || (window.from <= 0 && window.to >= width)) return "new";
  if (Math.abs(x - window.from) <= HANDLE) return "from";
  if (Math.abs(x - window.to) <= HANDLE) return "to";
  return x > window.from && x < window.to ? "move" : "new";
}

/** The window after dragging from one place to another; it stays within the whole. */
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
