// The charts pinned to the overview, as saved on the server: a list for each project.

import type { ChartSpec } from "../../data";

/** The saved document: chart specs by project. Validate it before use. */
export type PinnedDocument = Record<string, unknown>;

/** The valid charts of a project. */
export function pinnedIn(document: PinnedDocument, project: string): ChartSpec[] {
  const charts = Object.hasOwn(document, project) ? document[project] : null;
  return Array.isArray(charts) ? charts.filter(isSpec) : [];
}

/** The document with a chart pinned, or unpinned if it was. */
export function withToggled(document: PinnedDocument, project: string, spec: ChartSpec): PinnedDocument {
  const before = pinnedIn(document, project);
  const others = before.filter((chart) => !isSame(chart.keys, spec.keys));
  return { ...document, [project]: others.length < before.length ? others : [...others, spec] };
}

/** Whether two charts show the same. */
export function isSame(keys: readonly string[], others: readonly string[]): boolean {
  return JSON.stringify(keys) === JSON.stringify(others);
}

function isSpec(value: unknown): value is ChartSpec {
  const spec = value as ChartSpec | null;
  return (
    typeof spec?.title === "string" &&
    typeof spec.unit === "string" &&
    isNames(spec.keys) &&
    spec.keys.length > 0 &&
    isNames(spec.second_axis) &&
    ["line", "stack"].includes(spec.kind) &&
    ["rank", "device", "host", "none"].includes(spec.per)
  );
}

function isNames(list: unknown): list is string[] {
  return Array.isArray(list) && list.every((name) => typeof name === "string");
}
