// The types of the API's responses on runs, hosts, alerts and comparisons.

export type Status = "running" | "stalled" | "finished" | "failed" | "crashed";
export type Severity = "info" | "notice" | "warning" | "critical";
export type Scalar = string | number | boolean | null;
export type Tree = { [name: string]: Scalar | Tree | (Scalar | Tree)[] };

export interface Meta {
  version: string;
  now: number;
  store: string;
  read_only: boolean;
  has_token: boolean;
  run_count: number;
  channels: string[];
  projects: string[];
  bytes_used: number;
  agent: { cpu_ratio: number | null; rss_bytes: number | null };
  /** Journals that cannot be read or stored at present. */
  set_aside: { path: string; reason: string; advice: string }[];
}

export interface Verdict {
  id: string;
  headline: string;
  severity: Severity | "ok" | "unknown";
  confidence: number | null;
  steps: [number, number] | null;
  tries: string[];
}

export interface RunRow {
  id: string;
  name: string;
  project: string;
  status: Status;
  reason: string;
  started: number;
  ended: number | null;
  /** The sum of the segments, without the time between them. */
  duration_s: number;
  last_seen: number;
  step: number | null;
  total_steps: number | null;
  steps_per_second: number | null;
  eta_s: number | null;
  loss_last: number | null;
  loss_best: number | null;
  /** The newest loss if it is not a finite number. */
  loss_nonfinite: "NaN" | "∞" | "-∞" | null;
  loss_key: string | null;
  data_wait_ratio: number | null;
  gpu_mean_ratio: number | null;
  gpu_worst_ratio: number | null;
  gpu_worst: string | null;
  peak_memory_bytes: number | null;
  verdict: Verdict | null;
  /** What needs attention, in a sentence. */
  attention: string | null;
  open_alerts: number;
  tags: string[];
  archived: boolean;
  colour: string | null;
  hosts: string[];
  ranks: number;
  segments: number;
  config: Record<string, Scalar>;
  /** At most 40 values of the loss. */
  spark: (number | null)[];
}

export interface FilterFault {
  message: string;
  begin: number;
  end: number;
}

export interface RunList {
  total: number;
  runs: RunRow[];
  filter_error: FilterFault | null;
  config_keys: string[];
  tags: string[];
  /** Number of runs that need attention, regardless of the filter. */
  attention: number;
}

export interface Attention {
  run_id: string;
  run: string;
  what: string;
  severity: Severity;
  since: number;
  kind: "alert" | "status" | "finding";
}

export interface DeviceNow {
  device: string;
  name: string;
  utilization_ratio: number | null;
  memory_used_bytes: number | null;
  memory_total_bytes: number | null;
  temperature_celsius: number | null;
  power_watts: number | null;
}

export interface HostNow {
  host: string;
  live: boolean;
  last_seen: number;
  cpu_ratio: number | null;
  memory_used_bytes: number | null;
  memory_total_bytes: number | null;
  gpus: DeviceNow[];
  runs: string[];
}

export interface Home {
  running: RunRow[];
  attention: Attention[];
  recent: RunRow[];
  hosts: HostNow[];
}

export interface Note {
  id: number;
  run_id: string;
  step: number | null;
  time: number | null;
  text: string;
  made: number;
}

export interface Segment {
  id: string;
  status: Status;
  reason: string;
  started: number;
  ended: number | null;
  first_step: number | null;
  last_step: number | null;
}

export type AxisName = "step" | "epoch" | "samples" | "tokens" | "active" | "process" | "wall";

export interface Axis {
  name: AxisName;
  /** The series that maps a step to x; null where none is needed. */
  key: string | null;
  /** Why this axis cannot be chosen; null when it can. */
  why_not: string | null;
}

/** The header of every run page. */
export interface RunHead {
  row: RunRow;
  segments: Segment[];
  axes: Axis[];
  live: boolean;
  heartbeat_age_s: number | null;
  notes: Note[];
  cursor: string;
}

export interface AlertRow {
  id: number;
  run_id: string;
  run: string;
  rule: string;
  severity: Severity;
  message: string;
  fired: number;
  resolved: number | null;
  step: number | null;
  rank: number | null;
  device: string;
  value: number | null;
  threshold: number | null;
  key: string;
  quantity: string;
  recent: (number | null)[];
  advice: string;
  acknowledged: boolean;
  told: { channel: string; at: number | null; delivered: boolean }[];
}

export interface ComparisonCell {
  run: string;
  value: number | null;
  text: string;
  delta_ratio: number | null;
  delta_text: string;
  sure: boolean | null;
}

export interface ComparedFigure<Cell> {
  name: string;
  unit: string;
  better: "less" | "more" | "none";
  cells: Cell[];
}

/** The mean of a figure over the runs of a group. */
export interface GroupCell {
  runs: number;
  value: number | null;
  text: string;
  low: number | null;
  high: number | null;
  delta_ratio: number | null;
  delta_text: string;
  sure: boolean | null;
}

export interface Comparison {
  runs: RunRow[];
  baseline: string;
  keys: string[];
  /** Number of warm-up steps of each run that the figures exclude. */
  warm_up_steps: number[];
  figures: ComparedFigure<ComparisonCell>[];
  /** Runs with the same value of the grouping entry; null if they do not have it. */
  groups: { value: string | null; runs: string[] }[];
  group_figures: ComparedFigure<GroupCell>[];
  config: { key: string; values: (string | null)[]; same: boolean; types_differ: boolean }[];
  verdicts: Verdict[];
  /** The segments of each run. */
  segments: Segment[][];
  /** The x axes that all runs have. */
  axes: Axis[];
}

export interface AlertRule {
  name: string;
  severity: Severity;
  condition: string;
  message: string;
  enabled: boolean;
  is_default: boolean;
  advice: string;
  /** Where it comes from. */
  origin: RuleOrigin;
  /** The origin of the rule that it replaces. */
  replaces: RuleOrigin | null;
  run: string;
  project: string;
  for: string;
  clear: string;
  cooldown: string;
  remind: string;
  /** Channels; null for all. */
  channels: string[] | null;
  resolve: boolean;
  /** Why it is ignored; empty if it is not. */
  problem: string;
}

export type RuleOrigin = "usual" | "configuration" | "page" | "training";

/** A rule to save; without a condition, only whether the rule of that name is on. */
export interface NewRule {
  when?: string;
  for?: string;
  clear?: string;
  severity?: Severity;
  message?: string;
  advice?: string;
  cooldown?: string;
  remind?: string;
  channels?: string[] | null;
  resolve?: boolean;
  enabled?: boolean;
  run?: string;
  project?: string;
}

/** The result of checking a condition; positions count characters. */
export interface RuleCheck {
  ok: boolean;
  fault: FilterFault | null;
  written: string;
  keys: string[];
  doubts: string[];
  now: {
    run_id: string;
    run: string;
    live: boolean;
    is_true: boolean | null;
    subjects: number;
    true: number;
    key: string;
    value: number | null;
    threshold: number | null;
    rank: number | null;
    device: string;
  } | null;
}

export interface Silence {
  rule: string;
  run: string;
  until: number | null;
  reason: string;
}

export interface AlertList {
  open: AlertRow[];
  past: AlertRow[];
  rules: AlertRule[];
  channels: { name: string; kind: string; target: string }[];
  silences: Silence[];
  quiet_hours: string | null;
  rules_trouble: string;
}

export interface ServerSettings {
  items: { section: string; name: string; value: string; help: string }[];
  scrape_config: string | null;
  exporters: string[];
  /** The token file; null if no token is needed. */
  token_file: string | null;
}

/** Changes to the marks of a run; omitted fields stay as they are. */
export interface MarksChange {
  name?: string | null;
  tags?: string[];
  archived?: boolean;
  colour?: string | null;
  muted?: string[];
}
