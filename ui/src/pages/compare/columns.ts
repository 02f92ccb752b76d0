// The columns of the figure table: one for each run or group.

import type { Cell, ComparedFigure, Comparison, GroupCell } from "../../data";
import { count, quantity } from "../../format";
import { runColour } from "./presets";

export interface Column {
  id: string;
  name: string;
  colour: string;
  isBaseline: boolean;
  /** Number of runs of a group; null for a single run. */
  runs: number | null;
}

export interface ShownCell {
  text: string;
  /** Minimum to maximum of the runs; empty for fewer than two. */
  reach: string;
  delta: string;
  tone: "ok" | "bad" | "";
}

export interface ShownRow {
  name: string;
  cells: ShownCell[];
}

export function columnsOf(data: Comparison, groupedBy: string): Column[] {
  if (data.groups.length)
    return data.groups.map((group, at) => ({
      id: group.runs[0]!,
      name: groupName(groupedBy, group.value),
      colour: runColour(at, null),
      isBaseline: group.runs.includes(data.baseline),
      runs: group.runs.length,
    }));
  return data.runs.map((run, at) => ({
    id: run.id,
    name: run.name,
    colour: runColour(at, run.colour),
    isBaseline: run.id === data.baseline,
    runs: null,
  }));
}

export function rowsOf(data: Comparison): ShownRow[] {
  return data.groups.length
    ? data.group_figures.map((figure) => shown(figure, (cell) => reachOf(figure.unit, cell)))
    : data.figures.map((figure) => shown(figure, () => ""));
}

/** `lr 0.1`: the last part of a nested key, and its value. */
export function groupName(key: string, value: string | null): string {
  const short = key.slice(key.lastIndexOf(".") + 1);
  return value === null ? `no ${short}` : `${short} ${value}`;
}

export function runCount(runs: number): string {
  return runs === 1 ? "1 run" : `${count(runs)} runs`;
}

/** The number of warm-up steps that figures exclude, as text. */
export function leftOut(steps: readonly number[]): string {
  const [least, most] = [Math.min(...steps), Math.max(...steps)];
  if (most === 0) return "No steps are excluded.";
  const many = least === most ? count(most) : `${count(least)} to ${count(most)}`;
  return `The first ${many} steps of each run are excluded.`;
}

function shown<C extends Cell | GroupCell>(
  figure: ComparedFigure<C>,
  reach: (cell: C) => string,
): ShownRow {
  return {
    name: figure.name,
    cells: figure.cells.map((cell) => ({
      // Values that are not finite come as text.
      text: cell.value === null ? cell.text : quantity(cell.value, figure.unit),
      reach: reach(cell),
      delta: cell.delta_text,
      tone: toneOf(figure.better, cell),
    })),
  };
}

function reachOf(unit: string, { runs, low, high }: GroupCell): string {
  return runs > 1 ? `${quantity(low, unit)} – ${quantity(high, unit)}` : "";
}

function toneOf(
  better: "less" | "more" | "none",
  { delta_ratio: ratio, sure }: Pick<GroupCell, "delta_ratio" | "sure">,
): ShownCell["tone"] {
  if (ratio === null || better === "none" || sure === false || Math.abs(ratio) < 0.005) return "";
  return ratio < 0 === (better === "less") ? "ok" : "bad";
}
