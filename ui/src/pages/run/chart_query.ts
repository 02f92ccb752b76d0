// How the charts of a run are drawn, as it stands in an address.

import type { SyncState } from "../../chart/control/sync";
import { AXIS_NAMES } from "../../data/axis";
import type { SmoothingKind } from "../../data/smoothing";
import type { AxisName } from "../../data/types";

/** The parts of a query that say it. */
export const CHART_QUERY = ["x", "from", "to", "smooth", "by", "log", "logx", "band", "clip", "line"] as const;

const KINDS: SmoothingKind[] = ["ema", "mean", "gaussian", "min", "max"];

/** A number of an address; null where there is none. */
export function numberIn(query: URLSearchParams, name: string): number | null {
  const text = query.get(name);
  return text === null || text === "" || Number.isNaN(Number(text)) ? null : Number(text);
}

/** What an address asks for; `usualAxis` is that of a reader whose address names none. */
export function stateOf(query: URLSearchParams, usualAxis: string): Partial<SyncState> {
  const number = (name: string): number | null => numberIn(query, name);
  const [from, to] = [number("from"), number("to")];
  const axis = (query.get("x") ?? usualAxis) as AxisName;
  const range = from !== null && to !== null && from < to ? { from, to } : null;
  const kind = KINDS.find((one) => one === query.get("by")) ?? "ema";
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

/** The query of a state, as short as this reader needs it. */
export function queryOf(state: SyncState, usualAxis: string): Record<string, string | number | boolean> {
  return {
    x: state.axis === usualAxis ? "" : state.axis,
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

/** An address that shows the same to readers who prefer another axis or smoothing. */
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
