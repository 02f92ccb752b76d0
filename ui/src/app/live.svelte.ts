// The live stream of this tab, and its state for the page.

import { LiveStream, type LiveState, type StreamEventName, type StreamEvents } from "../data";
import { announcements } from "./announce.svelte";

class Live {
  readonly stream = new LiveStream();
  state = $state<LiveState>("off");
  retryInS = $state(0);
  /** The server's clock in seconds since the epoch, updated once a second. */
  now = $state(Date.now() / 1000);
  #ahead = 0;

  /** Starts listening. Called once. */
  begin(): void {
    this.stream.subscribe(null, []);
    this.stream.onState((state, retryInS) => {
      this.state = state;
      this.retryInS = retryInS;
    });
    this.stream.on("hello", (hello) => this.setClock(hello.now));
    this.stream.on("alert", (alert) => {
      if (alert.resolved === null) announcements.alert(`${alert.severity}: ${alert.message}`);
    });
    setInterval(() => {
      this.now = Date.now() / 1000 + this.#ahead;
    }, 1000);
  }

  /** Sets the server's clock, so that ages are right if the clocks differ. */
  setClock(now: number): void {
    this.#ahead = now - Date.now() / 1000;
    this.now = now;
  }

  /** Pauses or resumes live updates. */
  toggle(): void {
    if (this.state === "paused") this.stream.resume();
    else this.stream.pause();
  }

  /** Listens to an event while the calling component is mounted. */
  listen<Name extends StreamEventName>(event: Name, listener: (data: StreamEvents[Name]) => void): void {
    $effect(() => this.stream.on(event, listener));
  }
}

export const live = new Live();
