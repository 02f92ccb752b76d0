// Statuses and severities in words, with the icon and the tone that go with each.

import type { Severity, Status, Tile, Verdict } from "../data";
import type { IconName } from "./icons";

export type Tone = "ok" | "warn" | "bad" | "info" | "plain";

export interface Look {
  word: string;
  icon: IconName;
  tone: Tone;
}

export const STATUS_LOOKS: Record<Status, Look> = {
  running: { word: "Running", icon: "pulse", tone: "ok" },
  stalled: { word: "Stalled", icon: "clock", tone: "warn" },
  finished: { word: "Finished", icon: "check", tone: "plain" },
  failed: { word: "Failed", icon: "cross", tone: "bad" },
  crashed: { word: "Crashed", icon: "critical", tone: "bad" },
};

export const SEVERITY_LOOKS: Record<Severity | Verdict["severity"], Look> = {
  critical: { word: "Critical", icon: "critical", tone: "bad" },
  warning: { word: "Warning", icon: "warning", tone: "warn" },
  notice: { word: "Notice", icon: "info", tone: "info" },
  info: { word: "Info", icon: "info", tone: "plain" },
  ok: { word: "Healthy", icon: "check", tone: "ok" },
  unknown: { word: "No verdict", icon: "unknown", tone: "plain" },
};

export const TILE_LOOKS: Record<Tile["state"], Look> = {
  ok: { word: "Good", icon: "check", tone: "ok" },
  warn: { word: "Look", icon: "warning", tone: "warn" },
  bad: { word: "Bad", icon: "critical", tone: "bad" },
  unknown: { word: "Not known", icon: "unknown", tone: "plain" },
};

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

/** The severities from worst to least. */
export const WORST_FIRST: Severity[] = ["critical", "warning", "notice", "info"];
