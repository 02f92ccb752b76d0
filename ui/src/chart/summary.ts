// Describes a chart in a sentence, for people who do not see it.

import { count, duration, quantity, unitOf } from "../format";
import { keyLabels } from "./series/labels";
import type { Spread } from "../data/grouping";
import type { Series } from "../data/types";

type Summarised = Pick<Series, "key" | "axis" | "start" | "mean" | "nonfinite"> & { label?: string };

const MAX_NAMED = 4;
/** A smaller change, relative to the range, counts as none. */
const STEADY = 0.02;

/** The text a screen reader reads instead of the chart. */
export function summaryOf(series: readonly Summarised[], unit?: string): string {
  const lines = series.filter((line) => line.start.length > 0);
  if (lines.length === 0) return "No data yet.";
  const labels = keyLabels([...new Set(lines.map((line) => line.key))]);
  const names = [...new Set(lines.map((line) => line.key))];
  const sentences = lines
    .slice(0, MAX_NAMED)
    .map((line) => sentenceOf(line, line.label ?? labels[names.indexOf(line.key)]!, unit ?? unitOf(line.key)));
  const more = lines.length - MAX_NAMED;
  return sentences.join(" ") + (more > 0 ? ` ${more} more lines are in the table.` : "");
}

/** The message for lines without any finite value; null where there is one to draw. */
export function nonfiniteText(
  lines: readonly Pick<Series, "mean" | "last" | "count" | "nonfinite">[],
): string | null {
  const total = lines.reduce((sum, line) => sum + line.nonfinite.reduce((all, value) => all + value, 0), 0);
  if (total === 0 || lines.some((line) => line.mean.some((value) => !Number.isNaN(value)))) return null;
  const times = new Map<string, number>();
  for (const { last } of lines)
    for (const value of last) {
      const kind = Number.isNaN(value) ? "NaN" : value > 0 ? "Inf" : "−Inf";
      times.set(kind, (times.get(kind) ?? 0) + 1);
    }
  const kinds = [...times.keys()];
  // Of a bucket with several values only the last one is known.
  if (lines.some((line) => line.count.some((value) => value > 1)))
    return `None of ${count(total)} values is finite (${kinds.join(", ")}).`;
  if (kinds.length > 1)
    return `No finite value: ${kinds.map((kind) => `${count(times.get(kind)!)} ${kind}`).join(", ")}.`;
  return total === 1 ? `The only value is ${kinds[0]}.` : `All ${count(total)} values are ${kinds[0]}.`;
}

/** Why a window shows no line although there is data outside of it; null where a line is in the window. */
export function outsideText(
  lines: readonly { x: Float64Array }[],
  window: { from: number; to: number } | null,
  axis: "step" | "seconds",
): string | null {
  const reaches = lines.filter(({ x }) => x.length > 0).map(({ x }) => [x[0]!, x[x.length - 1]!] as const);
  if (!window || !reaches.length || reaches.some(([from, to]) => from <= window.to && to >= window.from))
    return null;
  const [from, to] = [Math.min(...reaches.map((reach) => reach[0])), Math.max(...reaches.map((reach) => reach[1]))];
  return `No data in this range.${axis === "step" ? ` There is data from ${count(from)} to about ${count(to)}.` : ""}`;
}

/** How many points are drawn and how wide a bucket is; for grouped runs, the meaning of the band. */
export function grainOf(
  lines: readonly { count: Float64Array; width: number; superseded: boolean }[],
  axis: "step" | "seconds",
  spread?: Spread,
): string {
  if (spread)
    return `mean of runs, band: ${spread === "range" ? "min–max" : "10 to 90%"}`;
  const standing = lines.filter((line) => !line.superseded && line.count.length > 0);
  if (standing.length === 0) return "";
  const points = standing.reduce(
    (total, line) => total + line.count.reduce((sum, value) => sum + value, 0),
    0,
  );
  const width = Math.max(...standing.map((line) => line.width));
  const all = standing.reduce((total, line) => total + line.count.length, 0);
  if (points === all) return `${count(points)} points, all drawn`;
  const bucket = axis === "step" ? `${count(width)} steps` : duration(width);
  return `${count(points)} points, ${bucket} per bucket, extremes kept`;
}

function sentenceOf(series: Summarised, label: string, unit: string): string {
  const finite = series.mean.filter((value) => !Number.isNaN(value));
  const name = label.charAt(0).toUpperCase() + label.slice(1);
  const bad = series.nonfinite.reduce((total, value) => total + value, 0);
  const broken = bad > 0 ? ` ${bad === 1 ? "1 value was" : `${count(bad)} values were`} not finite.` : "";
  if (finite.length === 0) return `${name} has no finite value.${broken}`;
  const [first, last] = [finite[0]!, finite[finite.length - 1]!];
  const low = finite.reduce((lowest, value) => Math.min(lowest, value));
  const high = finite.reduce((highest, value) => Math.max(highest, value));
  const distance = series.start[series.start.length - 1]! - series.start[0]!;
  const over = series.axis === "step" ? `${count(distance)} steps` : duration(distance);
  const change = high === low ? 0 : (last - first) / (high - low);
  const course =
    Math.abs(change) < STEADY || high - low <= STEADY * Math.abs(high)
      ? `stayed near ${quantity(last, unit)}`
      : `${change < 0 ? "fell" : "rose"} from ${quantity(first, unit)} to ${quantity(last, unit)}`;
  const reach = `minimum ${quantity(low, unit)}, maximum ${quantity(high, unit)}`;
  return `${name} ${course} over ${over}; ${reach}, last ${quantity(last, unit)}.${broken}`;
}
