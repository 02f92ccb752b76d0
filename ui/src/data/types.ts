// The types of the API: field names are those of the JSON, times are seconds since the epoch, ratios are between
// 0 and 1, and null means unknown.

export * from "./page_types";
export * from "./run_types";
export * from "./series_types";
