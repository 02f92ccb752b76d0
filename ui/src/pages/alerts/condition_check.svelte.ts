// Checks a condition on the server while it is typed, and repeats the check every few seconds.

import { api, type RuleCheck } from "../../data";

const PAUSE_MS = 250;
const REPEAT_MS = 4_000;

export class ConditionCheck {
  result = $state.raw<RuleCheck | null>(null);
  #turn = 0;

  /** Checks `condition` in `run` whenever they change, while the calling component is mounted. */
  constructor(condition: () => string, run: () => string | null) {
    $effect(() => {
      const [when, where] = [condition(), run()];
      if (!when.trim()) {
        this.#turn += 1;
        this.result = null;
        return;
      }
      const ask = (): void => void this.#ask(when, where);
      const soon = setTimeout(ask, PAUSE_MS);
      const again = setInterval(ask, REPEAT_MS);
      return () => {
        clearTimeout(soon);
        clearInterval(again);
      };
    });
  }

  async #ask(when: string, run: string | null): Promise<void> {
    const turn = ++this.#turn;
    try {
      const result = await api.post<RuleCheck>("alerts/rules/check", { when, ...(run ? { run } : {}) });
      if (turn === this.#turn) this.result = result;
    } catch {
      // An invalid condition shows when it is saved; the banner reports an unreachable server.
      if (turn === this.#turn) this.result = null;
    }
  }
}
