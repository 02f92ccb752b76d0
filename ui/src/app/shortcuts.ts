// All keyboard shortcuts, for the help overlay and the help page.

import { PAGES, RUN_PAGES } from "../pages/list";

export interface Shortcut {
  keys: string[];
  does: string;
}

const tabs = Object.values(RUN_PAGES);

export const SHORTCUTS: { title: string; items: Shortcut[] }[] = [
  {
    title: "Anywhere",
    items: [
      { keys: ["/"], does: "Go to the filter box" },
      ...Object.values(PAGES).flatMap(({ key, title }) => (key ? [{ keys: ["g", key], does: title }] : [])),
      { keys: ["Ctrl K"], does: "Find runs, metrics, pages and actions (⌘ K on a Mac)" },
      { keys: ["."], does: "Light or dark" },
      { keys: ["Space"], does: "Pause or resume live updates" },
      { keys: ["Esc"], does: "Back, or close what is open" },
      { keys: ["?"], does: "Show these keys" },
    ],
  },
  {
    title: "On the pages of a run",
    items: [
      { keys: [tabs[0]!.key!, "…", tabs.at(-1)!.key!], does: tabs.map((page) => page.title).join(", ") },
      { keys: ["x"], does: "Next x axis" },
      { keys: ["y"], does: "Logarithmic y axis on or off" },
      { keys: ["s"], does: "Go to smoothing" },
      { keys: ["[", "]"], does: "Less or more smoothing" },
      { keys: ["b"], does: "Min–max band on or off" },
      { keys: ["f"], does: "Follow the newest data" },
      { keys: ["0"], does: "Reset zoom" },
      { keys: ["+", "-"], does: "Zoom in or out" },
      { keys: ["n"], does: "Note at the crosshair" },
    ],
  },
  {
    title: "On charts",
    items: [
      { keys: ["j", "k"], does: "Next or previous chart" },
      { keys: ["Enter"], does: "Full screen" },
      { keys: ["←", "→"], does: "Move the crosshair by a bucket, with Shift by ten" },
      { keys: ["Shift F10"], does: "Menu at the crosshair, as with a right click" },
      { keys: ["drag"], does: "Zoom all charts; with Shift only this one, with Alt the y axis" },
      { keys: ["Ctrl", "wheel"], does: "Zoom around the pointer" },
      { keys: ["double click"], does: "Reset zoom" },
    ],
  },
];
