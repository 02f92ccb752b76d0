// Lets tabs of the same run share one stream: the tab with the lock listens and forwards events to the others.

import type { StreamEventName } from "./types";

export type SharedMessage =
  | { kind: "event"; name: StreamEventName; data: unknown; cursor: string }
  | { kind: "state"; state: "live" | "retrying" | "off"; retryInS: number; problem: string }
  | { kind: "want"; tab: string; keys: string[] }
  | { kind: "leave"; tab: string }
  | { kind: "retry" }
  | { kind: "leading" };

export interface Channel {
  postMessage(message: SharedMessage): void;
  close(): void;
  onmessage: ((message: MessageEvent<SharedMessage>) => void) | null;
}

/** The browser functions that sharing uses; null if they are missing, and then every tab listens itself. */
export interface SharingWorld {
  locks: Pick<LockManager, "request"> | null;
  openChannel: ((name: string) => Channel) | null;
}

export interface SharingListener {
  lead(): void;
  follow(): void;
  message(message: SharedMessage): void;
}

export function browserSharing(): SharingWorld {
  return {
    locks: typeof navigator === "undefined" ? null : (navigator.locks ?? null),
    openChannel: typeof BroadcastChannel === "undefined" ? null : (name) => new BroadcastChannel(name),
  };
}

/** One tab's membership in one topic. */
export class Sharing {
  private channel: Channel | null = null;
  private ended = false;
  private release: (() => void) | null = null;
  private readonly waiting = new AbortController();

  constructor(
    name: string,
    private readonly listener: SharingListener,
    world: SharingWorld,
  ) {
    if (world.locks === null || world.openChannel === null) {
      queueMicrotask(() => this.ended || listener.lead());
      return;
    }
    this.channel = world.openChannel(name);
    this.channel.onmessage = (message) => this.ended || listener.message(message.data);
    void this.elect(name, world.locks);
  }

  post(message: SharedMessage): void {
    if (!this.ended) this.channel?.postMessage(message);
  }

  /** Leaves the topic; the next tab in line takes over. */
  leave(): void {
    this.ended = true;
    this.waiting.abort();
    this.release?.();
    this.channel?.close();
  }

  private async elect(name: string, locks: Pick<LockManager, "request">): Promise<void> {
    const gotIt = await locks.request(name, { ifAvailable: true }, (lock) => lock !== null && this.hold());
    if (gotIt || this.ended) return;
    this.listener.follow();
    try {
      await locks.request(name, { signal: this.waiting.signal }, () => this.hold());
    } catch (error) {
      if (!(error instanceof DOMException && error.name === "AbortError")) throw error;
    }
  }

  /** Leads until the tab leaves: the lock is held while this promise is pending. */
  private hold(): Promise<boolean> | boolean {
    if (this.ended) return true;
    return new Promise((resolve) => {
      this.release = () => resolve(true);
      this.listener.lead();
      this.post({ kind: "leading" });
    });
  }
}
