// The shapes that travel between server and page: names are those of the JSON, times are seconds since
// the epoch, ratios lie between 0 and 1, and what is unknown is null.

export * from "./page_types";
export * from "./run_types";
export * from "./series_types";
