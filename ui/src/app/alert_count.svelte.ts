// How many alerts are active now, for the mark in the rail.

import { api, type AlertList } from "../data";
import { live } from "./live.svelte";

class OpenAlerts {
  count = $state(0);

  /** Counts now, and again whenever one fires or ends. Called once. */
  begin(): void {
    void this.look();
    live.stream.on("alert", () => void this.look());
    live.stream.on("runs", () => void this.look());
    setInterval(() => void this.look(), 60_000);
  }

  async look(): Promise<void> {
    try {
      this.count = (await api.get<AlertList>("alerts")).open.filter((alert) => !alert.acknowledged).length;
    } catch {
      return;
    }
  }
}

export const openAlerts = new OpenAlerts();
