// Announcements for screen readers: updates politely and rarely, alerts at once.

const PAUSE_MS = 30_000;

class Announcements {
  polite = $state("");
  assertive = $state("");
  #saidAt = -PAUSE_MS;
  #waiting: string | null = null;

  /** Announces a text at least 30 seconds after the previous one; of several only the last. */
  say(text: string): void {
    const since = performance.now() - this.#saidAt;
    if (since >= PAUSE_MS) {
      this.#speak(text);
      return;
    }
    if (this.#waiting === null) setTimeout(() => this.#speak(this.#waiting ?? ""), PAUSE_MS - since);
    this.#waiting = text;
  }

  /** Announces an urgent text at once. */
  alert(text: string): void {
    this.assertive = text;
  }

  #speak(text: string): void {
    this.#saidAt = performance.now();
    this.#waiting = null;
    this.polite = text;
  }
}

export const announcements = new Announcements();
