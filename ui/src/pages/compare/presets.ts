// The keys that a comparison draws, by preset.

import { theme } from "../../app/theme.svelte";

export type Preset = "all" | "performance" | "quality";

const PERFORMANCE =
  /^(step_seconds$|(phase|device|lag|ranks)\/|gpu\/(util|memory_used|power)|(samples|tokens)_per_second)/;
const QUALITY =
  /(loss|accuracy|perplexity|score|metric|eval|val|reward|gradient_norm|grad_norm|learning_rate)/i;
const MAX_CHARTS = 24;

/** The keys of a preset, most important first. */
export function presetKeys(keys: string[], preset: Preset): string[] {
  const chosen = keys.filter((key) =>
    preset === "all"
      ? true
      : preset === "quality"
        ? QUALITY.test(key) && !PERFORMANCE.test(key)
        : PERFORMANCE.test(key),
  );
  const rank = (key: string): number =>
    key === "loss" ? 0 : /loss/.test(key) ? 1 : key === "step_seconds" ? 2 : QUALITY.test(key) ? 3 : 4;
  return chosen.sort((a, b) => rank(a) - rank(b) || a.localeCompare(b)).slice(0, MAX_CHARTS);
}

/** The colours of runs in a comparison, in order; a colour a person chose for a run is kept. */
export function runColour(at: number, chosen: string | null): string {
  return chosen ?? theme.series[at % theme.series.length] ?? "";
}
