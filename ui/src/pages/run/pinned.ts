// The charts people have pinned to the overview, as they are kept on the server: a list for each project.

import type { ChartSpec } from "../../data";

/** What is kept: specs of charts by project. Nothing of it is trusted before it was looked at. */
export type PinnedDocument = Record<string, unknown>;

/** The charts of a project, without what is no chart. */
export function pinnedIn(document: PinnedDocument, project: string): ChartSpec[] {
  const kept = Object.hasOwn(document, project) ? document[project] : null;
  return Array.isArray(kept) ? kept.filter(isSpec) : [];
}

/** The document with a chart pinned, or without it where it was. */
export function withToggled(document: PinnedDocument, project: string, spec: ChartSpec): PinnedDocument {
  const before = pinnedIn(document, project);
  const others = before.filter((one) => !isSame(one.keys, spec.keys));
  return { ...document, [project]: others.length < before.length ? others : [...others, spec] };
}

/** Whether two charts show the same. */
export function isSame(keys: readonly string[], others: readonly string[]): boolean {
  return JSON.stringify(keys) === JSON.stringify(others);
}

function isSpec(one: unknown): one is ChartSpec {
  const spec = one as ChartSpec | null;
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
