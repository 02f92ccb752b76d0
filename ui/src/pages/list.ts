// All pages. The router, navigation, tabs, command palette, shortcuts, titles and help read this list;
// no other module names the path of a page.

import type { Component } from "svelte";
import type { IconName } from "../parts/icons";

export interface Page {
  /** The path below the base URL; for a page of a run, below that of the run. */
  path: string;
  title: string;
  icon: IconName;
  /** The key after `g` that opens it; for a page of a run, the key alone. */
  key?: string;
  /** Whether the navigation lists it at its end. */
  last?: boolean;
  /** Fetches its code. */
  load: () => Promise<{ default: Component }>;
}

const pages = <Name extends string>(list: Record<Name, Page>): Record<Name, Page> => list;

export const PAGES = pages({
  home: { path: "", title: "Home", icon: "home", key: "h", load: () => import("./home/HomePage.svelte") },
  runs: { path: "runs", title: "Runs", icon: "runs", key: "r", load: () => import("./runs/RunsPage.svelte") },
  compare: {
    path: "compare",
    title: "Compare",
    icon: "compare",
    key: "c",
    load: () => import("./compare/ComparePage.svelte"),
  },
  alerts: {
    path: "alerts",
    title: "Alerts",
    icon: "alerts",
    key: "a",
    load: () => import("./alerts/AlertsPage.svelte"),
  },
  settings: {
    path: "settings",
    title: "Settings",
    icon: "settings",
    key: "s",
    last: true,
    load: () => import("./settings/SettingsPage.svelte"),
  },
  help: { path: "help", title: "Help", icon: "help", last: true, load: () => import("./help/HelpPage.svelte") },
});

export const RUN_PAGES = pages({
  overview: {
    path: "",
    title: "Overview",
    icon: "pulse",
    key: "1",
    load: () => import("./overview/OverviewPage.svelte"),
  },
  metrics: {
    path: "metrics",
    title: "Metrics",
    icon: "follow",
    key: "2",
    load: () => import("./metrics/MetricsPage.svelte"),
  },
  system: {
    path: "system",
    title: "System",
    icon: "chip",
    key: "3",
    load: () => import("./system/SystemPage.svelte"),
  },
  steps: { path: "steps", title: "Steps", icon: "clock", key: "4", load: () => import("./steps/StepsPage.svelte") },
  diagnose: {
    path: "diagnose",
    title: "Diagnose",
    icon: "bulb",
    key: "5",
    load: () => import("./diagnose/DiagnosePage.svelte"),
  },
  logs: { path: "logs", title: "Logs", icon: "file", key: "6", load: () => import("./logs/LogsPage.svelte") },
  config: {
    path: "config",
    title: "Config",
    icon: "table",
    key: "7",
    load: () => import("./config/ConfigPage.svelte"),
  },
});

/** What the pages of a run have in common: header, tabs, and the state of its charts. */
export const RUN_FRAME = { path: "run", load: () => import("./run/RunPages.svelte") };

export type PageName = keyof typeof PAGES;
export type RunPageName = keyof typeof RUN_PAGES;

export const pageNames = Object.keys(PAGES) as PageName[];
export const runPageNames = Object.keys(RUN_PAGES) as RunPageName[];
