// The commands of the palette besides runs: pages, and actions of the open page.

import { api, type RunList, type RunRow } from "../data";
import type { IconName } from "../parts/icons";
import { PAGES, pageNames } from "../pages/list";
import { live } from "./live.svelte";
import { go, href, runHref } from "./router.svelte";
import { requestRule } from "./rule_request.svelte";
import { toggleDark } from "./theme.svelte";

export interface Command {
  title: string;
  kind: "Page" | "Action" | "Metric" | "Run";
  icon: IconName;
  hint?: string;
  act: () => void;
}

const ALWAYS: Command[] = [
  ...pageNames.map((name): Command => {
    const { title, icon, key } = PAGES[name];
    return { title, kind: "Page", icon, hint: key && `g ${key}`, act: () => go(href(name)) };
  }),
  {
    title: "New alert rule",
    kind: "Action",
    icon: "plus",
    act: () => requestRule({ name: "", condition: "", run: null }),
  },
  { title: "Switch between light and dark", kind: "Action", icon: "moon", hint: ".", act: toggleDark },
  {
    title: "Pause or resume live updates",
    kind: "Action",
    icon: "pause",
    hint: "Space",
    act: () => live.toggle(),
  },
];

let offered = $state.raw<Command[]>([]);

/** Adds commands while the calling component is mounted. */
export function offer(commands: () => Command[]): void {
  $effect(() => {
    offered = commands();
    return () => (offered = []);
  });
}

/** Runs as commands, for the palette. */
export async function runCommands(): Promise<Command[]> {
  const list = await api.get<RunList>("runs", { limit: 200 });
  return list.runs.map((run: RunRow): Command => ({
    title: run.name,
    kind: "Run",
    icon: "pulse",
    hint: [run.status, run.project].filter(Boolean).join(" · "),
    act: () => go(runHref(run.id)),
  }));
}

/** Commands whose titles contain every word; those that start with the text first. */
export function matching(commands: Command[], text: string, limit = 60): Command[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const matches = commands.filter((command) => {
    const where = `${command.title} ${command.hint ?? ""} ${command.kind}`.toLowerCase();
    return words.every((word) => where.includes(word));
  });
  const begins = (command: Command): number =>
    command.title.toLowerCase().startsWith(words[0] ?? "") ? 0 : 1;
  return matches.sort((a, b) => begins(a) - begins(b)).slice(0, limit);
}

/** All commands except runs; those of the open page first. */
export function standing(): Command[] {
  return [...offered, ...ALWAYS];
}
