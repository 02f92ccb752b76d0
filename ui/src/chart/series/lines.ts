// Turns the data of a chart into the lines to draw: places, labels, colours, smoothing, x.

import { mayBeSmoothed, referenceDistance, smooth } from "../../data/smoothing";
import type { Columns } from "../../data/buffer";
import { groupLines, type Grouped } from "./run_groups";
import type { ChartSync } from "../control/sync";
import type { SourceLine } from "./source";
import { meanAndWorst } from "./places";
import { keyLabels } from "./labels";
import { joinSeries } from "./joined_series";
import { dashOf, phaseColour, strokeOf, theme } from "../drawing/theme";

/** One line to draw. All columns have the same length; x ascends. */
export interface Line extends Columns {
  /** Lines of one group are one entry of the legend: a run's segments, a superseded tail. */
  group: string;
  label: string;
  /** Its name before a person renamed it. */
  origin: string;
  /** Comes first and never fades. */
  pinned: boolean;
  key: string;
  run: string;
  colour: string;
  dash: number[];
  scale: "y" | "y2";
  superseded: boolean;
  /** Drawn without a band: the worst of many. */
  plain: boolean;
  x: Float64Array;
  /** The value to draw: the mean or the last value of each bucket. */
  value: Float64Array;
  /** Null without smoothing. */
  smoothed: Float64Array | null;
  exact: boolean;
  width: number;
  /** Number of buckets of the whole line without zoom. */
  whole: number;
}

export interface LineOptions {
  runs: { id: string; name: string; colour: string }[] | null;
  keys: string[];
  per: "rank" | "device" | "host" | "none";
  /** Keys whose lines are separated differently. */
  perKey?: Record<string, LineOptions["per"]>;
  secondAxis: readonly string[];
  noSmoothing: readonly string[];
  /** Shows every place even if there are many. */
  expanded: boolean;
  /** Draws one line for the runs of each group, instead of one for each run. */
  grouped?: Grouped | null;
}

/** A line's data with its name, before colour and smoothing. */
export interface Part {
  group: string;
  label: string;
  key: string;
  run: string;
  superseded: boolean;
  plain: boolean;
  columns: Columns;
  exact: boolean;
  width: number;
  segment: string;
  whole: number;
}

/** More places than this are drawn as their mean, their range and the worst of them. */
export const MAX_PLACES = 8;

export function buildLines(sources: readonly SourceLine[], options: LineOptions, sync: ChartSync): Line[] {
  const parts = partsOf(sources, options);
  const groups = [...new Set(parts.map((part) => part.group))];
  const single = parts.flatMap((part) => drawn(part, groups.indexOf(part.group), options, sync));
  const lines = options.grouped ? groupLines(single, options.grouped) : single;
  const { smoothing } = sync.state;
  if (smoothing.amount > 0) {
    const reference = referenceDistance(lines.map((line) => ({ x: line.x, count: line.whole })));
    for (const line of lines) {
      if (!mayBeSmoothed(line.key, options.noSmoothing)) continue;
      const base = smoothing.kind === "min" ? line.min : smoothing.kind === "max" ? line.max : line.value;
      line.smoothed = smooth(line.x, base, smoothing, reference);
    }
  }
  return lines;
}

function partsOf(sources: readonly SourceLine[], options: LineOptions): Part[] {
  const labels = keyLabels(options.keys);
  const runs = options.runs ?? [];
  return options.keys.flatMap((key, keyAt) => {
    const ofKey = sources.filter((source) => source.owner.key === key);
    return [...new Set(ofKey.map((source) => source.owner.run))].flatMap((run) => {
      const ofRun = ofKey.filter((source) => source.owner.run === run);
      const keyPart = options.keys.length > 1 ? labels[keyAt]! : "";
      const runPart = runs.length ? (runs.find((candidate) => candidate.id === run)?.name ?? run) : "";
      const prefix = [runPart, keyPart].filter(Boolean).join(" · ");
      const joined = joinSeries(ofRun, options.perKey?.[key] ?? options.per);
      const places = new Set(joined.map((series) => series.place));
      const names = { run, key, prefix };
      if (places.size > MAX_PLACES && !options.expanded) return meanAndWorst(joined, names);
      return joined.map(({ place, ...series }): Part => {
        const shown = places.size > 1 ? place : "";
        return {
          ...series,
          group: JSON.stringify([run, key, shown]),
          label: [prefix, shown].filter(Boolean).join(" · ") || labels[keyAt]!,
          key,
          run,
          plain: false,
        };
      });
    });
  });
}

/** Usually one line; several if the axis starts at zero again with each process. */
function drawn(part: Part, at: number, options: LineOptions, sync: ChartSync): Line[] {
  const map = sync.mapOf(part.run);
  const { start } = part.columns;
  const x = new Float64Array(start.length);
  const segment = part.superseded ? part.segment : undefined;
  for (let bucket = 0; bucket < start.length; bucket += 1) x[bucket] = map.toX(start[bucket]!, segment);
  const stroke = strokeOf(at, theme());
  const runAt = options.runs?.findIndex((run) => run.id === part.run) ?? -1;
  const fixed =
    options.runs?.[runAt]?.colour ??
    phaseColour(part.key.startsWith("phase/") ? part.key : "");
  const colour = sync.colours.get(part.label) ?? fixed ?? stroke.colour;
  return ascending(x).map(([from, to]) => {
    const columns = Object.fromEntries(
      Object.entries(part.columns).map(([name, column]) => [name, column.subarray(from, to)]),
    ) as Columns;
    return {
      ...columns,
      group: part.group,
      label: sync.names.get(part.label) ?? part.label,
      origin: part.label,
      pinned: sync.pinned.has(part.label),
      key: part.key,
      run: part.run,
      colour,
      // A run keeps its colour: its keys differ in their dashes.
      dash: options.runs ? dashOf(Math.max(0, runAt), options.keys.indexOf(part.key)) : stroke.dash,
      scale: options.secondAxis.includes(part.key) ? "y2" : "y",
      superseded: part.superseded,
      plain: part.plain,
      x: x.subarray(from, to),
      value:
        sync.state.line === "last"
          ? columns.last.map((value) => (Number.isFinite(value) ? value : NaN))
          : columns.mean,
      smoothed: null,
      exact: part.exact,
      width: part.width,
      whole: part.whole,
    };
  });
}

/** The ranges in which x ascends. */
function ascending(x: Float64Array): [number, number][] {
  const stretches: [number, number][] = [];
  let from = 0;
  for (let at = 1; at < x.length; at += 1) {
    if (x[at]! < x[at - 1]!) {
      stretches.push([from, at]);
      from = at;
    }
  }
  stretches.push([from, x.length]);
  return stretches;
}
