// Positions of the bars, marks and ticks of a histogram along x.

import type { HistogramProps } from "../props";

type Bin = HistogramProps["bins"][number];

/** A last bin that is many times wider than the others contains outliers. */
const TAIL_WIDTHS = 3;
const TAIL_GAP = 6;
/** Approximate width of a letter of a label in CSS pixels. */
const LETTER = 7;
const BESIDE_MARK = 4;

export interface BinScale {
  /** The linear part of the axis. */
  low: number;
  high: number;
  /** The end of the linear part, in CSS pixels. */
  end: number;
  /** The bin beyond it, drawn as wide as the others: to scale it would leave no room for them. */
  tail: { low: number; high: number; from: number; to: number } | null;
}

export function binScale(bins: readonly Bin[], width: number): BinScale {
  const low = bins[0]?.low ?? 0;
  const last = bins.at(-1);
  const even = bins.length > 1 ? bins.slice(0, -1) : bins;
  const usual = even.length ? (even.at(-1)!.high - low) / even.length : 0;
  if (!last || bins.length < 2 || last.high - last.low <= TAIL_WIDTHS * usual)
    return { low, high: Math.max(last?.high ?? 1, low + Number.EPSILON * Math.abs(low || 1)), end: width, tail: null };
  const slot = Math.max(8, (width - TAIL_GAP) / bins.length);
  const end = Math.max(1, width - TAIL_GAP - slot);
  return { low, high: last.low, end, tail: { low: last.low, high: last.high, from: width - slot, to: width } };
}

export function placeOf({ low, high, end, tail }: BinScale, value: number): number {
  if (tail && value > tail.low)
    return tail.from + ((value - tail.low) / (tail.high - tail.low)) * (tail.to - tail.from);
  return ((value - low) / (high - low)) * end;
}

export interface PlacedMark {
  label: string;
  at: number;
  /** Counted from the top: labels that would overlap are in separate rows. */
  row: number;
  anchor: "start" | "end";
  text: number;
}

export function placeMarks(
  marks: readonly { label: string; value: number }[],
  scale: BinScale,
  width: number,
): PlacedMark[] {
  const taken: [number, number][][] = [];
  return marks
    .filter(({ value }) => value >= scale.low && value <= (scale.tail ?? scale).high)
    .map(({ label, value }) => {
      const at = placeOf(scale, value);
      const size = label.length * LETTER;
      const anchor = at + BESIDE_MARK + size > width ? "end" : "start";
      const text = at + (anchor === "end" ? -BESIDE_MARK : BESIDE_MARK);
      const [from, to] = anchor === "end" ? [text - size, at] : [at, text + size];
      let row = 0;
      while (taken[row]?.some(([begin, end]) => from < end && begin < to)) row += 1;
      taken[row] = [...(taken[row] ?? []), [from, to]];
      return { label, at, row, anchor, text };
    });
}
