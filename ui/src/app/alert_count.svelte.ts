// How many alerts are active now, for the mark in the rail.

import { api, type AlertList } from "../data";
import { live } from "./live.svelte";
import { Resource } from "./resource.svelte";

const EVERY_S = 60;
/** A page asks for what it shows first. */
const PAUSE_MS = 1000;

class OpenAlerts {
  readonly #list = new Resource<AlertList>(() => api.get<AlertList>("alerts"));

  get count(): number {
    return (this.#list.data?.open ?? []).filter((alert) => !alert.acknowledged).length;
  }

  /** Counts now, and again when one fires or ends. Called once. */
  begin(): void {
    setTimeout(() => void this.#list.load(), PAUSE_MS);
    live.stream.on("alert", () => this.#list.refresh(1));
    // Runs change all the time, and alerts are seldom why.
    live.stream.on("runs", () => this.#list.refresh(10));
    setInterval(() => this.#list.refresh(), EVERY_S * 1000);
  }

  /** Counts anew soon: somebody has changed something here. */
  look(): void {
    this.#list.refresh(0);
  }
}

export const openAlerts = new OpenAlerts();
