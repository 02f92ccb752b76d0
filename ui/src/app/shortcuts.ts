// All keyboard shortcuts, for the help overlay and the help page.

export interface Shortcut {
  keys: string[];
  does: string;
}

export const SHORTCUTS: { title: string; items: Shortcut[] }[] = [
  {
    title: "Anywhere",
    items: [
      { keys: ["/"], does: "Go to the filter box" },
      { keys: ["g", "h"], does: "Home" },
      { keys: ["g", "r"], does: "Runs" },
      { keys: ["g", "c"], does: "Compare" },
      { keys: ["g", "a"], does: "Alerts" },
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
      { keys: ["1", "…", "7"], does: "Overview, metrics, system, steps, diagnose, logs, config" },
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
