// The types of the API's responses for a run's pages, and of live events.

import type { AlertRow, Severity, Status, Tree, Verdict, RunRow } from "./run_types";
import type { PointsOfSeries, SeriesAxis } from "./series_types";

export interface Tile {
  id: "throughput" | "step_time" | "gpu" | "memory";
  title: string;
  /** Formatted, with its unit. */
  value: string;
  detail: string[];
  /** `none`: the figure is known and neither good nor bad. */
  state: "ok" | "warn" | "bad" | "none" | "unknown";
  state_text: string;
  spark: (number | null)[];
  change: { ratio: number; text: string } | null;
  /** The key of the chart to scroll to. */
  chart: string | null;
}

export interface PhaseShare {
  phase: string;
  key: string;
  mean_s: number;
  share: number;
}

export interface WallTime {
  seconds: number;
  parts: { name: string; label: string; seconds: number; share: number }[];
}

export interface ChartSpec {
  title: string;
  keys: string[];
  unit: string;
  kind: "line" | "stack";
  second_axis: string[];
  from_zero: boolean;
  percent: boolean;
  per: "rank" | "device" | "host" | "none";
}

export interface EventMark {
  kind: string;
  time: number;
  step: number | null;
  end_time: number | null;
  rank: number | null;
  label: string;
  detail: string;
}

export interface Ended {
  status: Status;
  text: string;
  last_step: number | null;
  failure: Failure | null;
  last_loss: string | null;
  log_lines: string[];
  duration_s: number;
  energy_kwh: number | null;
  cost: string | null;
  best: string | null;
  changed: string[];
}

export interface Overview {
  verdict: Verdict;
  tiles: Tile[];
  phases: PhaseShare[];
  wall_time: WallTime | null;
  key_charts: ChartSpec[];
  system_charts: ChartSpec[];
  events: EventMark[];
  /** Number of all events by kind; of a kind with very many, `events` has a sample. */
  event_counts: Record<string, number>;
  alerts: AlertRow[];
  environment: { label: string; value: string }[];
  ended: Ended | null;
  waiting_s: number | null;
  missing: { what: string; why: string }[];
}

export interface Place {
  rank: number | null;
  host: string;
  device: string;
  device_name: string;
}

export interface KeyInfo {
  key: string;
  group: string;
  unit: string;
  help: string;
  axis: SeriesAxis;
  points: number;
  last: number | null;
  nonfinite: number;
  percent: boolean;
  no_smoothing: boolean;
  places: Place[];
}

export interface Catalogue {
  keys: KeyInfo[];
}

export interface StepBar {
  step: number;
  time: number;
  seconds: number;
  phases: Record<string, number>;
  marks: string[];
}

export interface SlowStep {
  step: number;
  rank: number;
  time: number;
  seconds: number;
  ratio_to_median: number;
  worst_phase: string | null;
  marks: string[];
}

export interface HistogramBin {
  low: number;
  high: number;
  count: number;
}

export interface Percentiles {
  p50: number;
  p90: number;
  p95: number;
  p99: number;
  max: number;
}

export interface StepWindow {
  from: number;
  to: number;
  /** At most 400, sampled evenly; the slowest are always kept. */
  bars: StepBar[];
  phase_order: string[];
  slowest: SlowStep[];
  histogram: HistogramBin[];
  percentiles: Percentiles | null;
  count: number;
  ranks: number[];
  sampled_ratio: number | null;
  /** The share of the training's time that recording took, in the whole run. */
  overhead_ratio: number | null;
}

export interface Heatmap {
  key: string;
  unit: string;
  ranks: number[];
  hosts: string[];
  starts: number[];
  width: number;
  /** Rank by column, the mean of each cell. */
  values: (number | null)[][];
  late: { rank: number; phase: string; seconds: number; text: string } | null;
}

export interface Finding {
  /** The kind of problem, such as `input.exposed_wait`. */
  id: string;
  /** The id and its subject: unique in a run. */
  key: string;
  title: string;
  headline: string;
  detail: string;
  severity: Severity;
  confidence: number;
  share: number | null;
  open: boolean;
  muted: boolean;
  first_step: number | null;
  last_step: number | null;
  first_time: number;
  last_time: number;
  rank: number | null;
  device: string;
  evidence: { label: string; value: string; note: string }[];
  chart: { keys: string[]; from: number | null; to: number | null } | null;
  ruled_out: string[];
  remedies: { text: string; code: string | null; framework: string | null }[];
  tries: string[];
  estimate: { low: number; likely: number; high: number; of: string } | null;
  how: string;
  refs: string[];
}

/** Why a run failed. */
export interface Failure {
  reason: string;
  /** The type of the exception; null if there was none. */
  exception: string | null;
  message: string;
  traceback: string | null;
  /** Why there is no traceback, and how to record it next time. */
  hint: string | null;
}

export interface Findings {
  verdict: Verdict;
  failure: Failure | null;
  findings: Finding[];
  considered: { id: string; title: string; why_not: string; has_run: boolean }[];
}

export interface ConsoleLine {
  number: number;
  text: string;
  time: number | null;
  step: number | null;
  stream: string;
  level: string;
}

export interface Console {
  lines: ConsoleLine[];
  total: number;
  captured: boolean;
  why_not: string | null;
  /** How to record the output of the next run. */
  how: { text: string; code: string }[];
  file: string | null;
  failure: Failure | null;
}

export interface RunConfig {
  config: Tree;
  sections: { title: string; items: { label: string; value: string; copy: boolean }[] }[];
}

/** The data of live events, by name. */
export interface StreamEvents {
  hello: { now: number; cursor: string; heartbeat_s: number };
  run: RunRow;
  points: { run: string; series: PointsOfSeries[] };
  alert: AlertRow;
  finding: Finding;
  mark: EventMark;
  runs: { changed: RunRow[]; total: number };
  resync: { why: string };
}

export type StreamEventName = keyof StreamEvents;
