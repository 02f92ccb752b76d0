// Texts of the rule editor about a condition, and suggestions while it is typed.

import { keyInCondition } from "../../data/condition";
import type { Fault, KeyRow, NewRule, RuleCheck } from "../../data";
import { number } from "../../format";

const WINDOWED = "mean median p90 p95 p99 min max sum count std delta rate slope nonfinite last first".split(" ");
const FUNCTIONS = [
  ...WINDOWED.map((name) => ({ text: `${name}(`, about: "of a metric in a window, 2m or 100 points" })),
  { text: "age(", about: "seconds since the last point" },
  { text: "baseline(", about: "the level of the metric early in the run" },
  { text: 'status == "', about: "running, stalled, finished, failed or crashed" },
];
const MAX_PROPOSALS = 8;

export interface Proposal {
  /** The text that replaces the word. */
  text: string;
  about: string;
}

/** The word before the cursor: its start and its text. */
export function wordAt(text: string, cursor: number): { begin: number; typed: string } {
  const before = text.slice(0, cursor);
  // An odd number of backquotes: one is still open.
  const isOpen = before.split("`").length % 2 === 0;
  const typed = (isOpen ? /`[^`]*$/ : /[\p{L}_][\p{L}\p{N}_./]*$/u).exec(before)?.[0] ?? "";
  return { begin: cursor - typed.length, typed };
}

/** At most eight suggestions for a word: metrics of the run, then functions. */
export function proposals(typed: string, keys: readonly KeyRow[]): Proposal[] {
  const word = typed.replace(/^`/, "").toLowerCase();
  if (!typed) return [];
  const metrics = keys.map(({ key, help, last }) => ({
    name: key.toLowerCase(),
    text: keyInCondition(key),
    about: help || (last === null ? "" : `last ${number(last)}`),
  }));
  const functions = FUNCTIONS.map((call) => ({ ...call, name: call.text }));
  const rank = (name: string): number => (name.startsWith(word) ? 0 : 1);
  const fitting = [
    ...metrics.filter((metric) => metric.name.includes(word)).sort((a, b) => rank(a.name) - rank(b.name)),
    ...(typed.startsWith("`") ? [] : functions.filter((call) => call.name.startsWith(word))),
  ].filter((proposal) => proposal.text !== typed);
  return fitting.slice(0, MAX_PROPOSALS).map(({ text, about }) => ({ text, about }));
}

/** The text before an error, and the wrong part; the server counts characters, not UTF-16 units. */
export function marked(text: string, fault: Fault | null): { before: string; wrong: string } {
  if (!fault) return { before: "", wrong: "" };
  const all = [...text];
  const wrong = all.slice(fault.begin, fault.end).join("");
  // An error at the end marks the last character.
  if (!wrong) return { before: all.slice(0, -1).join(""), wrong: all.at(-1) ?? "" };
  return { before: all.slice(0, fault.begin).join(""), wrong };
}

const UNITS: Record<string, string> = { m: "min", min: "min", s: "s", ms: "ms", h: "h", d: "d" };

/** A duration of a rule as text, with a space before the unit. */
export function timeWords(text: string): string {
  const match = /^\s*([0-9.]+)\s*([a-zµ]*)\s*$/.exec(text);
  if (!match) return text.trim();
  const unit = match[2] === "" ? "s" : match[2]!;
  return `${match[1]} ${UNITS[unit] ?? unit}`;
}

/** What a rule will do, in a sentence. */
export function ruleText(rule: NewRule): string {
  const condition = rule.when?.trim() || "…";
  const holds = rule.for?.trim() ? `holds for ${timeWords(rule.for)}` : "is true";
  const where = rule.run ? " in this run" : rule.project ? ` in runs of ${rule.project}` : "";
  return `Fires when ${condition} ${holds}${where}`;
}

/** Whether the condition is true in a run, as text. */
export function standing(now: NonNullable<RuleCheck["now"]>, keys: readonly string[]): string {
  const when = now.live ? "now" : `at the end of ${now.run}`;
  const whose = keys.length > 1 ? `${now.key} ` : "";
  const value = now.value === null ? "" : `${whose}${number(now.value)}, `;
  if (now.is_true === null) return `${when}: ${value}unknown`;
  const many = now.subjects > 1;
  if (now.is_true) return `${when}: ${value}true${many ? ` for ${now.true} of ${now.subjects}` : ""}`;
  return `${when}: ${value}not true${many ? ` for any of ${now.subjects}` : ""}`;
}

/** Where the alert is sent, as text. */
export function channelText(channels: readonly string[] | null | undefined): string {
  if (!channels) return "Sent to all channels.";
  return channels.length
    ? `Sent to ${channels.join(", ")}.`
    : "Not sent; the alert is recorded and shown.";
}
