// The keys of a run's pages.

import { pageKeys } from "../../app/keyboard.svelte";
import { announcements } from "../../app/announce.svelte";
import type { RunView } from "./run_view.svelte";

const STEP = 0.1;

interface Doings {
  /** What opens each tab, by its key. */
  tabs: Record<string, () => void>;
  note: () => void;
  up: () => void;
}

/** Gives keys their meaning on the pages of a run, for as long as the calling component is shown. */
export function runKeys(view: RunView, { tabs, note, up }: Doings): void {
  const { sync } = view;
  pageKeys({
    ...tabs,
    x: () => {
      view.nextAxis();
      announcements.say(`x axis: ${sync.state.axis}`);
    },
    y: () => sync.set({ logY: !sync.state.logY }),
    s: (event) => {
      event.preventDefault();
      document.querySelector<HTMLElement>("[data-smoothing]")?.focus();
    },
    "[": () => view.smooth(sync.state.smoothing.amount - STEP),
    "]": () => view.smooth(sync.state.smoothing.amount + STEP),
    b: () => sync.set({ band: !sync.state.band }),
    f: () => sync.followLive(),
    Home: () => sync.followLive(),
    "0": () => sync.reset(),
    "+": () => sync.zoomBy(0.5),
    "-": () => sync.zoomBy(2),
    n: (event) => {
      event.preventDefault();
      note();
    },
    Escape: up,
  });
}
