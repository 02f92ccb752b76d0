// Keyboard shortcuts of the page: off while typing, and can be disabled.

import { PAGES, pageNames } from "../pages/list";
import { go, href } from "./router.svelte";
import { live } from "./live.svelte";
import { preferences } from "./preferences.svelte";
import { toggleDark } from "./theme.svelte";

type Action = (event: KeyboardEvent) => void;

/** How long to wait for the second key of `g h`. */
const PAUSE_MS = 1200;

class Overlays {
  palette = $state(false);
  keys = $state(false);
}

/** Panels over the page. */
export const overlays = new Overlays();

const everywhere: Record<string, Action> = {
  "/": (event) => focusFirst("[data-filter]", event),
  "?": () => (overlays.keys = !overlays.keys),
  ".": toggleDark,
  " ": (event) => {
    event.preventDefault();
    live.toggle();
  },
  j: (event) => moveChart(1, event),
  k: (event) => moveChart(-1, event),
};

const pageActions = new Map<string, Action>();

/** Adds shortcuts while the calling component is mounted. */
export function pageKeys(actions: Record<string, Action>): void {
  $effect(() => {
    for (const [key, action] of Object.entries(actions)) pageActions.set(key, action);
    return () => Object.keys(actions).forEach((key) => pageActions.delete(key));
  });
}

function isTyping(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  const takesText =
    target instanceof HTMLInputElement && !["checkbox", "radio", "range", "button"].includes(target.type);
  return (
    takesText ||
    target instanceof HTMLTextAreaElement ||
    target instanceof HTMLSelectElement ||
    target.isContentEditable
  );
}

function takesSpace(target: EventTarget | null): boolean {
  return (
    target instanceof Element &&
    target.closest("button, summary, a, input, [role=button], [role=option]") !== null
  );
}

function focusFirst(selector: string, event: KeyboardEvent): void {
  const element = document.querySelector<HTMLElement>(selector);
  if (!element) return;
  event.preventDefault();
  element.focus();
}

/** Moves the focus to the next or previous chart. */
function moveChart(by: number, event: KeyboardEvent): void {
  const charts = [...document.querySelectorAll<HTMLElement>("main figure[tabindex='0']")];
  if (charts.length === 0) return;
  event.preventDefault();
  const at = charts.indexOf(document.activeElement as HTMLElement);
  const next = charts[Math.min(charts.length - 1, Math.max(0, at < 0 ? 0 : at + by))];
  next?.focus({ preventScroll: true });
  next?.scrollIntoView({ block: "center" });
}

let goSince = -PAUSE_MS;

function press(event: KeyboardEvent): void {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    overlays.palette = !overlays.palette;
    return;
  }
  const isCommand = event.ctrlKey || event.metaKey || event.altKey;
  if (!preferences.keys || isCommand || event.defaultPrevented || isTyping(event.target)) return;
  if (document.querySelector("dialog[open]") && event.key !== "?") return;
  if (event.key === " " && takesSpace(event.target)) return;
  if (event.timeStamp - goSince < PAUSE_MS) {
    goSince = -PAUSE_MS;
    const page = pageNames.find((name) => PAGES[name].key === event.key);
    if (page) go(href(page));
    return;
  }
  if (event.key === "g") goSince = event.timeStamp;
  else (pageActions.get(event.key) ?? everywhere[event.key])?.(event);
}

/** Listens for keys. Called once. */
export function listenForKeys(): void {
  document.addEventListener("keydown", press);
}
