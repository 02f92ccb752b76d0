// Computes and draws the cells of a heatmap: ranks from top to bottom, steps from left to right.

import { cividis } from "../drawing/cividis";
import type { Heatmap } from "../../data/types";

export interface HeatScale {
  low: number;
  high: number;
}

/** From the 1st to the 99th percentile, so that one slow step does not darken all others. */
export function heatScale(values: readonly (readonly (number | null)[])[]): HeatScale {
  const known = values
    .flat()
    .filter((value): value is number => value !== null && Number.isFinite(value))
    .sort((a, b) => a - b);
  if (known.length === 0) return { low: 0, high: 1 };
  const low = known[Math.floor((known.length - 1) * 0.01)]!;
  const high = known[Math.ceil((known.length - 1) * 0.99)]!;
  return high > low ? { low, high } : { low, high: low + (Math.abs(low) || 1) };
}

/** One pixel for each cell; a cell without a value is transparent. */
export function heatImage({ values, ranks, starts }: Heatmap, { low, high }: HeatScale): ImageData {
  const image = new ImageData(Math.max(1, starts.length), Math.max(1, ranks.length));
  values.forEach((row, rank) => {
    row.forEach((value, column) => {
      if (value === null || !Number.isFinite(value)) return;
      const at = (rank * image.width + column) * 4;
      image.data.set([...cividis((value - low) / (high - low)), 255], at);
    });
  });
  return image;
}

/** The cell at a position; null outside of the heatmap. */
export function cellAt(
  heatmap: Heatmap,
  x: number,
  y: number,
  width: number,
  height: number,
): { rank: number; column: number } | null {
  const column = Math.floor((x / width) * heatmap.starts.length);
  const rank = Math.floor((y / height) * heatmap.ranks.length);
  const inside = column >= 0 && column < heatmap.starts.length && rank >= 0 && rank < heatmap.ranks.length;
  return inside ? { rank, column } : null;
}
