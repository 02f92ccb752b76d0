// The columns of the run table: title, sorting and text of each.

import type { RunRow, Verdict } from "../../data";
import { bytes, count, duration, number, percent } from "../../format";
import type { RunPageName } from "../list";

export interface Column {
  id: string;
  title: string;
  /** The server's sort key; absent if it cannot sort by this column. */
  sort?: string;
  width: string;
  isNumber?: boolean;
  text: (run: RunRow) => string;
}

const COLUMNS: Column[] = [
  { id: "status", title: "Status", sort: "status", width: "86px", text: (run) => run.status },
  { id: "name", title: "Name", sort: "name", width: "minmax(182px, 1.2fr)", text: (run) => run.name },
  {
    id: "project",
    title: "Project",
    sort: "project",
    width: "minmax(72px, 0.6fr)",
    text: (run) => run.project || "–",
  },
  { id: "started", title: "Started", sort: "started", width: "74px", isNumber: true, text: () => "" },
  {
    id: "duration_s",
    title: "Duration",
    sort: "duration_s",
    width: "82px",
    isNumber: true,
    text: (run) => duration(run.duration_s),
  },
  { id: "step", title: "Step", sort: "step", width: "100px", isNumber: true, text: stepText },
  {
    id: "steps_per_second",
    title: "Steps/s",
    sort: "steps_per_second",
    width: "66px",
    isNumber: true,
    text: (run) => number(run.steps_per_second, 3),
  },
  {
    id: "loss_last",
    title: "Loss · best",
    sort: "loss_last",
    width: "104px",
    isNumber: true,
    text: lossText,
  },
  {
    id: "data_wait_ratio",
    title: "Data wait",
    sort: "data_wait_ratio",
    width: "66px",
    isNumber: true,
    text: (run) => percent(run.data_wait_ratio),
  },
  {
    id: "gpu_mean_ratio",
    title: "GPU · worst",
    sort: "gpu_mean_ratio",
    width: "86px",
    isNumber: true,
    text: gpuText,
  },
  {
    id: "peak_memory_bytes",
    title: "Peak memory",
    sort: "peak_memory_bytes",
    width: "82px",
    isNumber: true,
    text: (run) => bytes(run.peak_memory_bytes),
  },
  {
    id: "verdict",
    title: "Verdict",
    width: "minmax(176px, 2.4fr)",
    text: (run) => verdictOf(run)?.text ?? "–",
  },
  { id: "tags", title: "Tags", width: "minmax(44px, 0.4fr)", text: (run) => run.tags.join(", ") || "–" },
  { id: "hosts", title: "Hosts", width: "100px", text: (run) => run.hosts.join(", ") || "–" },
  {
    id: "ranks",
    title: "Ranks",
    sort: "ranks",
    width: "52px",
    isNumber: true,
    text: (run) => count(run.ranks),
  },
  { id: "spark", title: "Loss curve", width: "112px", text: () => "" },
];

/** The newest loss as text, also if it is not finite. */
export function lastLoss(run: RunRow, digits = 4): string {
  return run.loss_nonfinite ?? number(run.loss_last, digits);
}

/** The verdict on a run in one line, with the tab that says more. */
export function verdictOf(run: RunRow): { text: string; severity: Verdict["severity"]; tab: RunPageName } | null {
  if (!run.verdict) return null;
  const isFailure = run.verdict.id.startsWith("status.");
  return { text: run.verdict.headline, severity: run.verdict.severity, tab: isFailure ? "overview" : "diagnose" };
}

/** The columns before a person chooses others. */
export const DEFAULT_COLUMNS = [
  "status",
  "name",
  "started",
  "duration_s",
  "step",
  "steps_per_second",
  "loss_last",
  "data_wait_ratio",
  "gpu_mean_ratio",
  "peak_memory_bytes",
  "verdict",
  "tags",
];

function stepText(run: RunRow): string {
  return run.total_steps ? `${count(run.step)} / ${count(run.total_steps)}` : count(run.step);
}

function lossText(run: RunRow): string {
  return run.loss_best === null
    ? lastLoss(run, 3)
    : `${lastLoss(run, 3)} · ${number(run.loss_best, 3)}`;
}

function gpuText(run: RunRow): string {
  return run.gpu_mean_ratio === null
    ? "–"
    : `${percent(run.gpu_mean_ratio)} · ${percent(run.gpu_worst_ratio)}`;
}

function configColumn(id: string): Column {
  const key = id.slice("config.".length);
  return {
    id,
    title: key,
    width: "minmax(72px, 0.6fr)",
    isNumber: true,
    text: (run) => {
      const value = run.config[key];
      return value === undefined || value === null
        ? "–"
        : typeof value === "number"
          ? number(value)
          : String(value);
    },
  };
}

/** Columns by their ids; those of configuration entries are `config.<key>`. */
export function columnsOf(ids: string[]): Column[] {
  return [...new Set(ids)].flatMap((id) =>
    id.startsWith("config.") ? [configColumn(id)] : COLUMNS.filter((column) => column.id === id),
  );
}

/** All columns, for the chooser. */
export function allColumns(configKeys: string[]): Column[] {
  return [...COLUMNS, ...configKeys.map((key) => configColumn(`config.${key}`))];
}
