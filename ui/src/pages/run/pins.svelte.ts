// Pins charts to the overview of all runs of a project.

import { asApiError, Resource } from "../../app/resource.svelte";
import { canChange } from "../../app/server.svelte";
import { toast } from "../../app/toasts.svelte";
import { api, type ChartSpec } from "../../data";
import { isSame, pinnedIn, withToggled, type PinnedDocument } from "./pinned";

const PLACE = "layouts/pinned";

export class Pins {
  readonly #document = new Resource(() => api.get<PinnedDocument>(PLACE));

  constructor(private readonly project: () => string) {}

  get charts(): ChartSpec[] {
    return pinnedIn(this.#document.data ?? {}, this.project());
  }

  /** Why pinning is not available; null if it is. */
  get whyNot(): string | null {
    return canChange() ? null : "This server is read-only.";
  }

  has(keys: string[]): boolean {
    return this.charts.some((chart) => isSame(chart.keys, keys));
  }

  async load(): Promise<void> {
    await this.#document.load();
  }

  /** Pins a chart, or takes it off again. What others have pinned meanwhile stays. */
  async toggle(spec: ChartSpec): Promise<void> {
    try {
      const now = await api.get<PinnedDocument>(PLACE);
      this.#document.data = await api.put<PinnedDocument>(PLACE, withToggled(now, this.project(), spec));
    } catch (error) {
      toast(asApiError(error).message, { tone: "bad" });
      return;
    }
    toast(`${this.has(spec.keys) ? "Pinned to" : "Taken off"} the Overview: ${spec.title}`, {
      undo: () => void this.toggle(spec),
    });
  }
}
