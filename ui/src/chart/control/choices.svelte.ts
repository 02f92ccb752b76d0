// The options a person has chosen in one chart only.

import type { Bounds } from "../series/y_bounds";
import type { Mergeable } from "../series/merge";

export class ChartChoices {
  hidden = $state.raw<ReadonlySet<string>>(new Set());
  /** Null follows the setting of all charts. */
  logY = $state<boolean | null>(null);
  zero = $state(false);
  share = $state(false);
  expanded = $state(false);
  heat = $state(false);
  table = $state(false);
  /** The fixed y range. */
  bounds = $state.raw<Bounds | null>(null);
  /** The form that is open below the chart's head. */
  form = $state<"range" | "merge" | null>(null);
  /** The charts that are merged into this one. */
  merged = $state.raw<readonly Mergeable[]>([]);
  /** The value of an alert that is being created; null without one. */
  level = $state<number | null>(null);

  /** Shows many devices as single lines or as a heatmap, or again as mean and range. */
  showMany(how: "expanded" | "heat"): void {
    const isOn = !this[how];
    [this.expanded, this.heat] = [false, false];
    this[how] = isOn;
  }

  /** Hides or shows a line; with `solo`, hides or shows all others. */
  toggle(group: string, solo: boolean, groups: Iterable<string>): void {
    const others = [...groups].filter((name) => name !== group);
    const alone = others.every((name) => this.hidden.has(name)) && !this.hidden.has(group);
    if (solo) this.hidden = new Set(alone ? [] : others);
    else if (this.hidden.has(group)) this.hidden = new Set([...this.hidden].filter((name) => name !== group));
    else this.hidden = new Set([...this.hidden, group]);
  }
}
