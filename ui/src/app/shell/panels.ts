// Panels over the page that are fetched when they are opened. The command palette is not: people type into it at once.

export const PANELS = {
  keys: () => import("./ShortcutPanel.svelte"),
  rule: () => import("../../pages/alerts/RuleEditor.svelte"),
};
