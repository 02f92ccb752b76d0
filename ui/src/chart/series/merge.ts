// Merges the lines of several charts into one: lines with another unit use the second axis.

import type { ChartProps } from "../props";

type Per = NonNullable<ChartProps["per"]>;

/** The content of a chart that can be merged into another. */
export interface Mergeable {
  title: string;
  keys: string[];
  unit: string;
  secondAxis: string[];
  /** Null without a second axis. */
  secondUnit: string | null;
  per: Per;
  noSmoothing: string[];
}

export interface Merged extends Mergeable {
  /** How the lines of a key are separated, where it differs from the chart they are merged into. */
  perKey: Record<string, Per>;
}

/** A chart of one key. */
export function ofKey(key: string, unit: string, more: Partial<Mergeable> = {}): Mergeable {
  return {
    title: key,
    keys: [key],
    unit,
    secondAxis: [],
    secondUnit: null,
    per: "none",
    noSmoothing: [],
    ...more,
  };
}

/** One chart with the lines of all, including what they were merged with before. */
export function mergedWith(own: Mergeable, others: readonly Mergeable[]): Merged {
  const merged: Merged = { ...own, perKey: {} };
  for (const other of others) {
    for (const key of other.keys) {
      if (merged.keys.includes(key)) continue;
      const unit = unitIn(other, key);
      merged.keys = [...merged.keys, key];
      if (unit !== own.unit) {
        merged.secondAxis = [...merged.secondAxis, key];
        merged.secondUnit ??= unit;
      }
      if (other.per !== own.per) merged.perKey[key] = other.per;
    }
    merged.noSmoothing = [...merged.noSmoothing, ...other.noSmoothing];
  }
  return merged;
}

/** Why a chart cannot be merged into another; null if it can. */
export function whyNotMerged(own: Mergeable, other: Mergeable): string | null {
  if (other.keys.every((key) => own.keys.includes(key))) return "already shown";
  const units = new Set([own.unit, ...(own.secondUnit === null ? [] : [own.secondUnit])]);
  for (const key of other.keys) units.add(unitIn(other, key));
  return units.size > 2 ? "would be a third unit" : null;
}

/** The charts of a page without duplicates. */
export function distinct(charts: Iterable<Mergeable>): Mergeable[] {
  return [...new Map([...charts].map((chart) => [JSON.stringify(chart.keys), chart])).values()];
}

function unitIn({ unit, secondAxis, secondUnit }: Mergeable, key: string): string {
  return secondAxis.includes(key) ? (secondUnit ?? "") : unit;
}
