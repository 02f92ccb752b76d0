// The number of active alerts, for the badge in the navigation rail.

import { api, type AlertList } from "../data";
import { live } from "./live.svelte";
import { Resource } from "./resource.svelte";

const INTERVAL_S = 60;
/** The page requests its own content first. */
const PAUSE_MS = 1000;

class OpenAlerts {
  readonly #list = new Resource<AlertList>(() => api.get<AlertList>("alerts"));

  get count(): number {
    return (this.#list.data?.open ?? []).filter((alert) => !alert.acknowledged).length;
  }

  /** Counts now, and again when an alert fires or ends. Called once. */
  begin(): void {
    setTimeout(() => void this.#list.load(), PAUSE_MS);
    live.stream.on("alert", () => this.#list.refresh(1));
    // Runs change often, and alerts are rarely the reason.
    live.stream.on("runs", () => this.#list.refresh(10));
    setInterval(() => this.#list.refresh(), INTERVAL_S * 1000);
  }

  /** Counts again soon, after a change on this page. */
  refresh(): void {
    this.#list.refresh(0);
  }
}

export const openAlerts = new OpenAlerts();
