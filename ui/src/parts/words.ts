// Word, icon and tone of each status and severity.

import type { Severity, Status, Tile, Verdict } from "../data";
import type { IconName } from "./icons";

export type Tone = "ok" | "warn" | "bad" | "info" | "plain";

export interface Style {
  word: string;
  icon: IconName;
  tone: Tone;
}

export const STATUS_STYLES: Record<Status, Style> = {
  running: { word: "Running", icon: "pulse", tone: "ok" },
  stalled: { word: "Stalled", icon: "clock", tone: "warn" },
  finished: { word: "Finished", icon: "check", tone: "plain" },
  failed: { word: "Failed", icon: "cross", tone: "bad" },
  crashed: { word: "Crashed", icon: "critical", tone: "bad" },
};

export const SEVERITY_STYLES: Record<Severity | Verdict["severity"], Style> = {
  critical: { word: "Critical", icon: "critical", tone: "bad" },
  warning: { word: "Warning", icon: "warning", tone: "warn" },
  notice: { word: "Notice", icon: "info", tone: "info" },
  info: { word: "Info", icon: "info", tone: "plain" },
  ok: { word: "Healthy", icon: "check", tone: "ok" },
  unknown: { word: "No verdict", icon: "unknown", tone: "plain" },
};

const TILE_STYLES: Record<Tile["state"], Omit<Style, "icon"> & { icon: IconName | null }> = {
  ok: { word: "Good", icon: "check", tone: "ok" },
  warn: { word: "Check", icon: "warning", tone: "warn" },
  bad: { word: "Bad", icon: "critical", tone: "bad" },
  none: { word: "", icon: null, tone: "plain" },
  unknown: { word: "Unknown", icon: "unknown", tone: "plain" },
};

/** The state of a tile as text, icon and tone; without a judgement, a change has an arrow. */
export function tileStyle({ state, state_text, change }: Pick<Tile, "state" | "state_text" | "change">): {
  text: string;
  icon: IconName | null;
  tone: Tone;
} {
  const { word, icon, tone } = TILE_STYLES[state];
  const arrow = change === null ? null : change.ratio < 0 ? "fall" : "up";
  return { text: state_text || word, icon: icon ?? arrow, tone };
}

export const PHASE_WORDS: Record<string, string> = {
  data: "Data wait",
  transfer: "Transfer",
  forward: "Forward",
  backward: "Backward",
  optimizer: "Optimizer",
  checkpoint: "Checkpoint",
  eval: "Evaluation",
  other: "Other",
};

/** The severities, worst first. */
export const WORST_FIRST: Severity[] = ["critical", "warning", "notice", "info"];
