// The one live stream of this tab, and what the page shows of its state.

import { LiveStream, type LiveState, type StreamEventName, type StreamEvents } from "../data";
import { announcements } from "./announce.svelte";

class Live {
  readonly stream = new LiveStream();
  state = $state<LiveState>("off");
  retryInS = $state(0);
  /** Seconds since the epoch, by the server's clock, moved on once a second. */
  now = $state(Date.now() / 1000);
  #ahead = 0;

  /** Begins to listen. Called once. */
  begin(): void {
    this.stream.subscribe(null, []);
    this.stream.onState((state, retryInS) => {
      this.state = state;
      this.retryInS = retryInS;
    });
    this.stream.on("hello", (hello) => this.setClock(hello.now));
    this.stream.on("alert", (alert) => {
      if (alert.resolved === null) announcements.alarm(`${alert.severity}: ${alert.message}`);
    });
    setInterval(() => {
      this.now = Date.now() / 1000 + this.#ahead;
    }, 1000);
  }

  /** Learns the server's clock, so that ages are right where the two differ. */
  setClock(now: number): void {
    this.#ahead = now - Date.now() / 1000;
    this.now = now;
  }

  /** Stops and goes on with live news. */
  toggle(): void {
    if (this.state === "paused") this.stream.resume();
    else this.stream.pause();
  }

  /** Listens to an event for as long as the calling component is shown. */
  listen<Name extends StreamEventName>(event: Name, listener: (data: StreamEvents[Name]) => void): void {
    $effect(() => this.stream.on(event, listener));
  }
}

export const live = new Live();
