// The entries of a chart's menu.

import type { ChartSpec } from "../../data/types";
import type { ChartChoices } from "./choices.svelte";
import type { ChartController } from "./controller";
import { copyPicture, csvOfEverything, csvOfShown, saveText } from "../drawing/export";
import { toggleFullScreen } from "./keys";
import type { ChartPins } from "../props";
import type { ChartSync } from "./sync";
import { theme } from "../drawing/theme";

export interface MenuItem {
  label: string;
  /** Undefined for an action, true or false for a switch. */
  checked?: boolean;
  /** Why it is not available now. */
  whyNot?: string | null;
  act(): void;
}

export interface MenuContext {
  title: string;
  run: string;
  runs: string[];
  keys: string[];
  kind: "line" | "stack" | "band";
  sync: ChartSync;
  choices: ChartChoices;
  many: boolean;
  pins: ChartPins | undefined;
  /** The chart as a spec that can be pinned. */
  spec(): ChartSpec;
  controller(): ChartController | null;
  figure(): HTMLElement;
  say(text: string): void;
}

export function menuItems(context: MenuContext): MenuItem[] {
  const { choices } = context;
  return [
    { label: "Full screen", act: () => void toggleFullScreen(context.figure()) },
    { label: "Show as table", checked: choices.table, act: () => void (choices.table = !choices.table) },
    { label: "Reset zoom", act: () => context.controller()?.reset() },
    ...(context.kind === "stack" ? stackItems(context) : lineItems(context)),
    ...pinItems(context),
    ...exportItems(context),
  ];
}

function pinItems({ pins, keys, spec }: MenuContext): MenuItem[] {
  if (!pins) return [];
  const label = pins.has(keys) ? "Unpin from Overview" : "Pin to Overview";
  return [{ label, whyNot: pins.whyNot, act: () => pins.toggle(spec()) }];
}

function stackItems({ choices }: MenuContext): MenuItem[] {
  const act = (): void => void (choices.share = !choices.share);
  return [{ label: "Share in percent", checked: choices.share, act }];
}

function lineItems(context: MenuContext): MenuItem[] {
  const { sync, choices } = context;
  const logY = choices.logY ?? sync.state.logY;
  const { clip } = sync.state;
  const items: MenuItem[] = [
    { label: "Logarithmic y", checked: logY, act: () => void (choices.logY = !logY) },
    { label: "y from zero", checked: choices.zero, act: () => void (choices.zero = !choices.zero) },
    { label: "Set y range…", act: () => void (choices.form = "range") },
    { label: "Clip outliers (all charts)", checked: clip, act: () => sync.set({ clip: !clip }) },
  ];
  items.push({ label: "Merge with another chart…", act: () => void (choices.form = "merge") });
  if (context.many) {
    const expand = (): void => choices.showMany("expanded");
    const heat = (): void => choices.showMany("heat");
    items.push({ label: "All ranks and devices", checked: choices.expanded, act: expand });
    items.push({ label: "Heatmap of all", checked: choices.heat, act: heat });
  }
  if (sync.actions.alert) {
    const act = (): void => {
      choices.level = context.controller()?.pointedValue ?? null;
      if (choices.level === null) context.say("The chart is still loading. Try again.");
    };
    items.push({ label: "Alert at this value…", whyNot: whyNoLines(context), act });
  }
  return items;
}

/** Why actions on lines are not available: a heatmap is shown instead. */
function whyNoLines({ choices, many }: MenuContext): string | null {
  return choices.heat && many ? "Close the heatmap first." : null;
}

function exportItems(context: MenuContext): MenuItem[] {
  const whyNot = whyNoLines(context);
  return [
    { label: "Copy picture (PNG)", whyNot, act: () => void tried(context, copy(context)) },
    { label: "Copy picture (SVG)", whyNot, act: () => void tried(context, copyVector(context)) },
    { label: "Copy data", act: () => void tried(context, copyData(context)) },
    {
      label: "Download CSV (shown data)",
      act: () => shownCsv(context, (text) => saveText(text, `${context.title}.csv`)),
    },
    { label: "Download CSV (all data)", act: () => void tried(context, everything(context)) },
  ];
}

async function tried(context: MenuContext, work: Promise<string>): Promise<void> {
  try {
    context.say(await work);
  } catch (error) {
    context.say(error instanceof Error ? error.message : String(error));
  }
}

async function copy(context: MenuContext): Promise<string> {
  const canvas = context.controller()?.canvas;
  if (!canvas) return "Nothing is drawn yet.";
  return (await copyPicture(canvas, context.title, theme())) === "copied"
    ? "Picture copied"
    : "Picture saved";
}

async function copyVector({ controller, title }: MenuContext): Promise<string> {
  const picture = controller()?.svg(title);
  if (!picture) return "Nothing is drawn yet.";
  try {
    await navigator.clipboard.writeText(picture);
    return "Picture copied";
  } catch {
    saveText(picture, `${title}.svg`, "image/svg+xml");
    return "Picture saved";
  }
}

async function copyData(context: MenuContext): Promise<string> {
  let text = "";
  shownCsv(context, (made) => (text = made));
  await navigator.clipboard.writeText(text);
  return "Data copied";
}

function shownCsv({ controller, sync }: MenuContext, done: (text: string) => void): void {
  const chart = controller();
  if (chart?.window) done(csvOfShown(chart.shownLines, chart.window, sync.state.axis));
}

async function everything(context: MenuContext): Promise<string> {
  context.say("Reading everything…");
  for (const run of context.runs) {
    saveText(
      await csvOfEverything(run, context.keys, context.sync.storedAxis),
      `${context.title}-${run}.csv`,
    );
  }
  return "Saved";
}
