// What a person can do to alert rules from any page.

import { api, type AlertRule, type NewRule } from "../data";
import { asApiError } from "./resource.svelte";
import { toast } from "./toasts.svelte";

class Changes {
  count = $state(0);
}

/** Grows whenever rules were changed here, so that lists of them can be fetched anew. */
export const ruleChanges = new Changes();

const at = (name: string): string => `alerts/rules/${encodeURIComponent(name)}`;

/** Makes a rule, or changes the one of that name; throws where the server refuses it. */
export async function putRule(name: string, body: NewRule): Promise<void> {
  await api.put(at(name), body);
  ruleChanges.count += 1;
}

/** What makes a rule again as it is. */
export function bodyOf(rule: AlertRule): Required<NewRule> {
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

/** Switches a rule on or off, with a way to undo it. */
export function switchRule(name: string, enabled: boolean): Promise<void> {
  const undo = (): void => void switchRule(name, !enabled);
  return tried(putRule(name, { enabled }), `“${name}” is ${enabled ? "on" : "off"}`, undo);
}

/** Deletes a rule that was made here, with a way to undo it. */
export function deleteRule(rule: AlertRule): Promise<void> {
  const work = api.del(at(rule.name)).then(() => void (ruleChanges.count += 1));
  const undo = (): void => void tried(putRule(rule.name, bodyOf(rule)), `“${rule.name}” is back`);
  return tried(work, `Deleted “${rule.name}”`, rule.problem ? null : undo);
}
