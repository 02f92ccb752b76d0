// Actions on alert rules, for any page.

import { api, type RuleRow, type NewRule } from "../data";
import { asApiError } from "./resource.svelte";
import { toast } from "./toasts.svelte";

class Changes {
  count = $state(0);
}

/** Increases whenever rules are changed here, so that lists of them are fetched again. */
export const ruleChanges = new Changes();

const at = (name: string): string => `alerts/rules/${encodeURIComponent(name)}`;

/** Creates a rule, or replaces the one of that name; throws if the server refuses it. */
export async function putRule(name: string, body: NewRule): Promise<void> {
  await api.put(at(name), body);
  ruleChanges.count += 1;
}

/** The request body that recreates a rule. */
export function bodyOf(rule: RuleRow): Required<NewRule> {
  const { severity, message, advice, clear, cooldown, remind, channels, resolve, enabled, run, project } = rule;
  const terms = { when: rule.condition, for: rule.for, clear, cooldown, remind, run, project };
  return { ...terms, severity, message, advice, channels, resolve, enabled };
}

async function tried(work: Promise<void>, done: string, undo: (() => void) | null = null): Promise<void> {
  try {
    await work;
    toast(done, { undo });
  } catch (error) {
    toast(asApiError(error).message, { tone: "bad" });
  }
}

/** Switches a rule on or off, with undo. */
export function switchRule(name: string, enabled: boolean): Promise<void> {
  const undo = (): void => void switchRule(name, !enabled);
  return tried(putRule(name, { enabled }), `“${name}” is ${enabled ? "on" : "off"}`, undo);
}

/** Deletes a rule that was created on the page, with undo. */
export function deleteRule(rule: RuleRow): Promise<void> {
  const work = api.del(at(rule.name)).then(() => void (ruleChanges.count += 1));
  const undo = (): void => void tried(putRule(rule.name, bodyOf(rule)), `Restored “${rule.name}”`);
  return tried(work, `Deleted “${rule.name}”`, rule.problem ? null : undo);
}
