// The types of the API: field names are those of the JSON, times are seconds since the epoch, ratios are between
// 0 and 1, and null means unknown. They are generated; here are the names that only the page has.

import type {
  AxisChoice,
  Cell,
  Figure,
  Finding,
  GroupCell,
  NewRule as RuleBody,
  PointsOfSeries,
  RuleRow,
  RunConfig as RunConfigAnswer,
  RunRow,
  SeriesHeader,
  SeriesPart,
  StreamEvents,
} from "./api_types";

export type * from "./api_types";

export type Status = RunRow["status"];
export type Severity = Finding["severity"];
export type Scalar = RunRow["config"][string];
export type Tree = { [name: string]: Scalar | Tree | (Scalar | Tree)[] };
/** The page never sends a rule with the condition null. */
export type NewRule = Omit<RuleBody, "when"> & { when?: string };
/** The schema says that the configuration is an object, not how deep it goes. */
export type RunConfig = Omit<RunConfigAnswer, "config"> & { config: Tree };
export type AxisName = AxisChoice["name"];
export type RuleOrigin = RuleRow["origin"];
export type ComparedFigure<C extends Cell | GroupCell> = Omit<Figure, "cells"> & { cells: C[] };
export type StreamEventName = keyof StreamEvents;

export type SeriesAxis = SeriesHeader["axis"];
export type SeriesColumn = SeriesHeader["columns"][number];
export type SeriesInfo = Omit<SeriesPart, "data">;
/** A number from the stream: JSON has no numbers that are not finite, so these are strings. */
export type WireNumber = PointsOfSeries["values"][number];

export const SERIES_COLUMNS = [
  "start",
  "count",
  "min",
  "max",
  "mean",
  "last",
  "nonfinite",
  "time",
] as const satisfies readonly SeriesColumn[];

/** One series from the API: columns of buckets, all of the same length. */
export type Series = Omit<SeriesInfo, "length"> & { axis: SeriesAxis } & Record<SeriesColumn, Float64Array>;
