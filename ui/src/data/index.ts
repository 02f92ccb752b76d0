// The public names of the data layer.

export { api, ApiError, apiUrl, type Query } from "./api";
export { SeriesBuffer, MAX_BUCKETS, type Points } from "./buffer";
export { LiveStream, type LiveState } from "./live";
export {
  decodeSeries,
  fetchSeries,
  fetchSeriesAnswer,
  type SeriesAnswer,
  type SeriesOptions,
} from "./series";
export type { Smoothing, SmoothingKind } from "./smoothing";
export * from "./types";
