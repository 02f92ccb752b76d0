// What can be done with a chart, as entries of its menu.

import { ChartController } from "./controller";
import { copyPicture, csvOfEverything, csvOfShown, saveText } from "./export";
import { toggleFullScreen } from "./keys";
import type { ChartSync } from "./sync";
import { theme } from "./theme";

export interface MenuItem {
  label: string;
  /** Undefined for what is done, true or false for what is on or off. */
  checked?: boolean;
  act(): void;
}

export interface MenuContext {
  title: string;
  run: string;
  runs: string[];
  keys: string[];
  kind: "line" | "stack" | "band";
  sync: ChartSync;
  table: boolean;
  share: boolean;
  expanded: boolean;
  many: boolean;
  zero: boolean;
  logY: boolean;
  controller(): ChartController | null;
  figure(): HTMLElement;
  say(text: string): void;
  set(change: {
    table?: boolean;
    share?: boolean;
    expanded?: boolean;
    zero?: boolean;
    logY?: boolean | null;
  }): void;
}

export function menuItems(context: MenuContext): MenuItem[] {
  const { sync, set } = context;
  const items: MenuItem[] = [
    { label: "Full screen", act: () => void toggleFullScreen(context.figure()) },
    { label: "Show as table", checked: context.table, act: () => set({ table: !context.table }) },
    { label: "Reset zoom", act: () => context.controller()?.reset() },
  ];
  if (context.kind === "stack")
    items.push({
      label: "Share in percent",
      checked: context.share,
      act: () => set({ share: !context.share }),
    });
  else {
    items.push(
      { label: "Logarithmic y", checked: context.logY, act: () => set({ logY: !context.logY }) },
      { label: "y from zero", checked: context.zero, act: () => set({ zero: !context.zero }) },
      {
        label: "Clip outliers (all charts)",
        checked: sync.state.clip,
        act: () => sync.set({ clip: !sync.state.clip }),
      },
    );
  }
  if (context.many)
    items.push({
      label: "Every rank and device",
      checked: context.expanded,
      act: () => set({ expanded: !context.expanded }),
    });
  items.push(
    { label: "Copy picture (PNG)", act: () => void tried(context, copy(context)) },
    { label: "Copy data", act: () => void tried(context, copyData(context)) },
    {
      label: "CSV of what is shown",
      act: () => shownCsv(context, (text) => saveText(text, `${context.title}.csv`)),
    },
    { label: "CSV of everything", act: () => void tried(context, everything(context)) },
  );
  return items;
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
