// Joins the series of one place into one line: the segments of a run one after the other, all ranks combined
// where a chart does not separate them, and each superseded tail as its own line.

import type { Columns } from "../../data/buffer";
import { SERIES_COLUMNS } from "../../data/types";
import { placeLabel } from "./labels";
import { combine } from "./places";
import type { SourceLine } from "./source";

export interface JoinedSeries {
  /** Empty where a chart does not separate places. */
  place: string;
  superseded: boolean;
  segment: string;
  columns: Columns;
  exact: boolean;
  width: number;
  /** Number of buckets of the whole line without zoom. */
  whole: number;
}

/** The joined series of one key of one run, in the order of places, superseded ones last. */
export function joinSeries(
  sources: readonly SourceLine[],
  per: "rank" | "device" | "host" | "none",
): JoinedSeries[] {
  const owners = sources.map((source) => source.owner);
  const groups = new Map<string, { place: string; sources: SourceLine[] }>();
  for (const source of sources) {
    const place = placeLabel(source.owner, per, owners);
    const tail = source.owner.superseded ? source.owner.segment : "";
    const name = JSON.stringify([place, source.owner.superseded, tail]);
    const group = groups.get(name) ?? { place, sources: [] };
    groups.set(name, group);
    group.sources.push(source);
  }
  return [...groups.values()].map((group) => joinParts(group.place, group.sources));
}

function joinParts(place: string, sources: readonly SourceLine[]): JoinedSeries {
  const { superseded, segment } = sources[0]!.owner;
  const bySegment = new Map<string, SourceLine[]>();
  for (const source of sources) {
    bySegment.set(source.owner.segment, [...(bySegment.get(source.owner.segment) ?? []), source]);
  }
  const pieces = [...bySegment.values()].map(combinedRanks);
  const whole =
    sources.length === 1 ? sources[0]!.whole.length : sum(pieces.map((piece) => piece.start.length));
  return {
    place,
    superseded,
    segment,
    columns: concatenated(pieces, widest(sources)),
    exact: sources.length === bySegment.size && sources.every((source) => source.exact),
    width: widest(sources),
    whole,
  };
}

/** All ranks of one segment. */
function combinedRanks(sources: readonly SourceLine[]): Columns {
  if (sources.length === 1) return sources[0]!.columns;
  return combine(
    sources.map((source) => source.columns),
    widest(sources),
  );
}

/** Concatenates pieces; where they overlap, combines them into one set of buckets. */
function concatenated(pieces: readonly Columns[], width: number): Columns {
  const ordered = pieces
    .filter((piece) => piece.start.length > 0)
    .sort((a, b) => a.start[0]! - b.start[0]!);
  if (ordered.length <= 1) return ordered[0] ?? pieces[0]!;
  const apart = ordered.every((piece, at) => at === 0 || piece.start[0]! > ordered[at - 1]!.start.at(-1)!);
  if (!apart) return combine(ordered, width);
  const length = sum(ordered.map((piece) => piece.start.length));
  const columns = SERIES_COLUMNS.map((name) => {
    const column = new Float64Array(length);
    let at = 0;
    for (const piece of ordered) {
      column.set(piece[name], at);
      at += piece[name].length;
    }
    return [name, column] as const;
  });
  return Object.fromEntries(columns) as Columns;
}

function widest(sources: readonly SourceLine[]): number {
  return Math.max(...sources.map((source) => source.width));
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
