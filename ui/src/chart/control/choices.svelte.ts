// What a person has chosen in one chart alone.

import type { Bounds } from "../series/y_limits";
import type { Mergeable } from "../series/merge";

export class ChartChoices {
  hidden = $state.raw<ReadonlySet<string>>(new Set());
  /** Null does as all charts do. */
  logY = $state<boolean | null>(null);
  zero = $state(false);
  share = $state(false);
  expanded = $state(false);
  heat = $state(false);
  table = $state(false);
  /** The y range that was typed. */
  bounds = $state.raw<Bounds | null>(null);
  /** What is being asked for below the chart's head. */
  form = $state<"range" | "merge" | null>(null);
  /** The charts whose lines have joined this one. */
  merged = $state.raw<readonly Mergeable[]>([]);
  /** Where the line of an alert that is being made stands; null without one. */
  level = $state<number | null>(null);

  /** Shows many devices as lines or as a field, or again as their mean and range. */
  showMany(how: "expanded" | "heat"): void {
    const isOn = !this[how];
    [this.expanded, this.heat] = [false, false];
    this[how] = isOn;
  }

  /** Hides or shows a line; alone, hides or shows all others. */
  toggle(group: string, solo: boolean, groups: Iterable<string>): void {
    const others = [...groups].filter((one) => one !== group);
    const alone = others.every((one) => this.hidden.has(one)) && !this.hidden.has(group);
    if (solo) this.hidden = new Set(alone ? [] : others);
    else if (this.hidden.has(group)) this.hidden = new Set([...this.hidden].filter((one) => one !== group));
    else this.hidden = new Set([...this.hidden, group]);
  }
}
