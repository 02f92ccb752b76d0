// Turns the numbers of a chart into the lines that are drawn: places, labels, colours, smoothing, x.

import { mayBeSmoothed, referenceDistance, smooth } from "../../data/smoothing";
import type { Columns } from "../../data/buffer";
import { groupLines, type Grouped } from "./run_groups";
import type { ChartSync } from "../control/sync";
import type { SourceLine } from "./source";
import { gathered } from "./places";
import { keyLabels } from "./labels";
import { strandsOf } from "./joined_series";
import { dashOf, phaseColour, strokeOf, theme } from "../drawing/theme";

/** One line as it is drawn. Columns are of one length; x ascends. */
export interface Line extends Columns {
  /** Lines of one group are one entry of the legend: a run's segments, a superseded tail. */
  group: string;
  label: string;
  /** What it was called before a person gave it another name. */
  origin: string;
  /** Comes first and never fades. */
  pinned: boolean;
  key: string;
  run: string;
  colour: string;
  dash: number[];
  scale: "y" | "y2";
  superseded: boolean;
  /** Drawn without a band of its own: the worst of many. */
  plain: boolean;
  x: Float64Array;
  /** What the line passes through: the mean or the last value of each bucket. */
  value: Float64Array;
  /** Null where nothing is smoothed. */
  smoothed: Float64Array | null;
  exact: boolean;
  width: number;
  /** How many buckets the line has where nothing is zoomed. */
  whole: number;
}

export interface LineOptions {
  runs: { id: string; name: string; colour: string }[] | null;
  keys: string[];
  per: "rank" | "device" | "host" | "none";
  /** Keys whose lines are told apart in another way. */
  perKey?: Record<string, LineOptions["per"]>;
  secondAxis: readonly string[];
  noSmoothing: readonly string[];
  /** Shows every place although there are many. */
  expanded: boolean;
  /** Draws one line for the runs of each group, instead of one for each run. */
  grouped?: Grouped | null;
}

/** A line's numbers with its name, before colour and smoothing. */
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
      const runPart = runs.length ? (runs.find((one) => one.id === run)?.name ?? run) : "";
      const prefix = [runPart, keyPart].filter(Boolean).join(" · ");
      const strands = strandsOf(ofRun, options.perKey?.[key] ?? options.per);
      const places = new Set(strands.map((strand) => strand.place));
      const names = { run, key, prefix };
      if (places.size > MAX_PLACES && !options.expanded) return gathered(strands, names);
      return strands.map(({ place, ...strand }): Part => {
        const shown = places.size > 1 ? place : "";
        return {
          ...strand,
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

/** Usually one line; several where an axis that starts anew with each process folds it. */
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
      // A run keeps its colour: what else is shown of it differs in its stroke.
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

/** The stretches over which x does not go back. */
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
