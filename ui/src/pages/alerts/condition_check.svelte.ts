// Asks the server about a condition while it is typed, and again and again while it is looked at.

import { api, type RuleCheck } from "../../data";

const PAUSE_MS = 250;
const AGAIN_MS = 4_000;

export class ConditionCheck {
  answer = $state.raw<RuleCheck | null>(null);
  #turn = 0;

  /** Asks about what `condition` and `run` give, whenever that changes, while the calling component is shown. */
  constructor(condition: () => string, run: () => string | null) {
    $effect(() => {
      const [when, where] = [condition(), run()];
      if (!when.trim()) {
        this.#turn += 1;
        this.answer = null;
        return;
      }
      const ask = (): void => void this.#ask(when, where);
      const soon = setTimeout(ask, PAUSE_MS);
      const again = setInterval(ask, AGAIN_MS);
      return () => {
        clearTimeout(soon);
        clearInterval(again);
      };
    });
  }

  async #ask(when: string, run: string | null): Promise<void> {
    const turn = ++this.#turn;
    try {
      const answer = await api.post<RuleCheck>("alerts/rules/check", { when, ...(run ? { run } : {}) });
      if (turn === this.#turn) this.answer = answer;
    } catch {
      // Whether it is right shows when it is kept; the banner tells of a server that is away.
      if (turn === this.#turn) this.answer = null;
    }
  }
}
