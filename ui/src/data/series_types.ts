// The types of series: buckets from the API, points from the live stream.

export type SeriesAxis = "step" | "seconds";
export const SERIES_COLUMNS = ["start", "count", "min", "max", "mean", "last", "nonfinite", "time"] as const;
export type SeriesColumn = (typeof SERIES_COLUMNS)[number];

export interface SeriesInfo {
  key: string;
  rank: number | null;
  host: string;
  device: string;
  segment: string;
  superseded: boolean;
  width: number;
  length: number;
  points: number;
  /** The width is 1 and no bucket holds more than one point. */
  exact: boolean;
}

export interface SeriesHeader {
  run: string;
  axis: SeriesAxis;
  columns: SeriesColumn[];
  series: SeriesInfo[];
  cursor: string;
  missing: string[];
}

/** One series from the API: columns of buckets, all of the same length. */
export interface Series {
  key: string;
  rank: number | null;
  host: string;
  device: string;
  segment: string;
  superseded: boolean;
  axis: SeriesAxis;
  width: number;
  points: number;
  exact: boolean;
  start: Float64Array;
  count: Float64Array;
  min: Float64Array;
  max: Float64Array;
  mean: Float64Array;
  last: Float64Array;
  nonfinite: Float64Array;
  time: Float64Array;
}

/** A number from the stream: JSON has no numbers that are not finite, so these are strings. */
export type WireNumber = number | "NaN" | "Infinity" | "-Infinity";

export interface PointsOfSeries {
  key: string;
  rank: number | null;
  host: string;
  device: string;
  axis: SeriesAxis;
  /** For points without a step: the step in progress at the time. */
  steps: number[];
  times: number[];
  values: WireNumber[];
}
