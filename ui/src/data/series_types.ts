// Series as they travel: buckets from the server, points from the live stream.

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

/** One line of a chart as the server answers it: columns of buckets, each as long as the others. */
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

/** A number as the stream sends it: JSON has no word for those that are not finite. */
export type WireNumber = number | "NaN" | "Infinity" | "-Infinity";

export interface PointsOfSeries {
  key: string;
  rank: number | null;
  host: string;
  device: string;
  axis: SeriesAxis;
  /** Of points without a step of their own: the one in progress at the time. */
  steps: number[];
  times: number[];
  values: WireNumber[];
}
