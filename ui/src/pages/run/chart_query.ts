// The settings of a run's charts in the query string of a URL.

import type { SyncState } from "../../chart/control/sync";
import { AXIS_NAMES } from "../../data/axis";
import type { SmoothingKind } from "../../data/smoothing";
import type { AxisName } from "../../data/types";

/** The query parameters that hold them. */
export const CHART_QUERY = ["x", "from", "to", "smooth", "by", "log", "logx", "band", "clip", "line"] as const;

const KINDS: SmoothingKind[] = ["ema", "mean", "gaussian", "min", "max"];

/** A number in the query; null if there is none. */
export function numberIn(query: URLSearchParams, name: string): number | null {
  const text = query.get(name);
  return text === null || text === "" || Number.isNaN(Number(text)) ? null : Number(text);
}

/** The settings in a query; `defaultAxis` is used if it names no axis. */
export function stateOf(query: URLSearchParams, defaultAxis: string): Partial<SyncState> {
  const number = (name: string): number | null => numberIn(query, name);
  const [from, to] = [number("from"), number("to")];
  const axis = (query.get("x") ?? defaultAxis) as AxisName;
  const range = from !== null && to !== null && from < to ? { from, to } : null;
  const kind = KINDS.find((candidate) => candidate === query.get("by")) ?? "ema";
  return {
    axis: AXIS_NAMES.includes(axis) ? axis : "step",
    range,
    follow: range === null,
    logX: query.get("logx") === "true",
    logY: query.get("log") === "true",
    band: query.get("band") !== "off",
    clip: query.get("clip") === "true",
    line: query.get("line") === "last" ? "last" : "mean",
    ...(query.has("smooth") || query.has("by") ? { smoothing: { kind, amount: number("smooth") ?? 0 } } : {}),
  };
}

/** The query of a state, without defaults of this browser. */
export function queryOf(state: SyncState, defaultAxis: string): Record<string, string | number | boolean> {
  return {
    x: state.axis === defaultAxis ? "" : state.axis,
    from: state.range ? Number(state.range.from.toPrecision(12)) : "",
    to: state.range ? Number(state.range.to.toPrecision(12)) : "",
    smooth: state.smoothing.amount || "",
    by: state.smoothing.kind === "ema" ? "" : state.smoothing.kind,
    log: state.logY,
    logx: state.logX,
    band: state.band ? "" : "off",
    clip: state.clip,
    line: state.line === "last" ? "last" : "",
  };
}

/** A link that shows the same in browsers with other preferences. */
export function linkTo(address: string, state: SyncState, at: number | null = null): string {
  const url = new URL(address);
  for (const [name, value] of Object.entries(queryOf(state, ""))) {
    if (value === "" || value === false) url.searchParams.delete(name);
    else url.searchParams.set(name, String(value));
  }
  url.searchParams.set("smooth", String(state.smoothing.amount));
  if (at === null) url.searchParams.delete("at");
  else url.searchParams.set("at", String(at));
  return url.href;
}
