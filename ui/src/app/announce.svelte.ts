// What a screen reader is told: news politely and seldom, alerts at once.

const PAUSE_MS = 30_000;

class Announcements {
  polite = $state("");
  assertive = $state("");
  #saidAt = -PAUSE_MS;
  #waiting: string | null = null;

  /** Says something when 30 seconds have passed since the last word; of several only the last. */
  say(text: string): void {
    const since = performance.now() - this.#saidAt;
    if (since >= PAUSE_MS) {
      this.#speak(text);
      return;
    }
    if (this.#waiting === null) setTimeout(() => this.#speak(this.#waiting ?? ""), PAUSE_MS - since);
    this.#waiting = text;
  }

  /** Says at once what cannot wait. */
  alarm(text: string): void {
    this.assertive = text;
  }

  #speak(text: string): void {
    this.#saidAt = performance.now();
    this.#waiting = null;
    this.polite = text;
  }
}

export const announcements = new Announcements();
