// Fetches the code of pages before they are opened.

import { PAGES, RUN_FRAME, RUN_PAGES } from "../pages/list";
import { fetched } from "./lazy.svelte";
import { PANELS } from "./shell/panels";
import { loadersOf } from "./route";
import { routeOfLink } from "./router.svelte";

/** The open page and its requests come first. */
const PAUSE_MS = 3000;

/** Fetches the page of a link that the pointer or the focus reaches. */
function approach(event: Event): void {
  const link = event.target instanceof Element ? event.target.closest("a") : null;
  const route = link && routeOfLink(link);
  if (route) for (const load of loadersOf(route)) void fetched(load).fetch();
}

/** Fetches the rest one after another, so that an open page works without its server, and after an upgrade. */
async function fetchRest(): Promise<void> {
  const pages = [...Object.values(PAGES), RUN_FRAME, ...Object.values(RUN_PAGES)];
  for (const load of [...pages.map((page) => page.load), ...Object.values(PANELS)]) await fetched(load).fetch();
}

/** Begins to fetch ahead. Called once. */
export function prefetchPages(): void {
  document.addEventListener("pointerover", approach, { passive: true });
  document.addEventListener("focusin", approach);
  const soon = (): void => void setTimeout(() => void fetchRest(), PAUSE_MS);
  if (document.readyState === "complete") soon();
  else addEventListener("load", soon, { once: true });
}
