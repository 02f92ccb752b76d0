// A stage for live streams: a server, timers, locks and channels that a test moves by hand.

import type { Query } from "../../src/data/api";
import { LiveStream, type Visibility } from "../../src/data/live";
import type { Delta, LiveWorld } from "../../src/data/live_connection";
import type { Channel, SharedMessage, SharingWorld } from "../../src/data/live_sharing";

export class StagedSource {
  closed = false;
  private readonly listeners = new Map<string, ((message: unknown) => void)[]>();

  constructor(readonly url: URL) {}

  addEventListener(name: string, listener: (message: unknown) => void): void {
    this.listeners.set(name, [...(this.listeners.get(name) ?? []), listener]);
  }

  close(): void {
    this.closed = true;
  }

  say(name: string, data: unknown, id = ""): void {
    for (const listener of this.listeners.get(name) ?? [])
      listener({ data: JSON.stringify(data), lastEventId: id });
  }

  hello(cursor = "c1"): void {
    this.say("hello", { now: 1, cursor, heartbeat_s: 15 }, cursor);
  }

  fail(): void {
    this.say("error", {});
  }
}

/** What several tabs of one browser share. */
export class StagedBrowser {
  private readonly channels = new Map<string, StagedChannel[]>();
  private readonly queues = new Map<string, (() => void)[]>();

  readonly sharing: SharingWorld = {
    openChannel: (name) => {
      const channel = new StagedChannel(() => this.channels.get(name) ?? []);
      this.channels.set(name, [...(this.channels.get(name) ?? []), channel]);
      return channel;
    },
    locks: { request: this.request.bind(this) as LockManager["request"] },
  };

  private async request(
    name: string,
    options: LockOptions,
    held: (lock: Lock | null) => unknown,
  ): Promise<unknown> {
    const queue = this.queues.get(name);
    if (queue && options.ifAvailable) return held(null);
    if (queue) {
      await new Promise<void>((resolve, reject) => {
        queue.push(resolve);
        options.signal?.addEventListener("abort", () => {
          this.queues.set(
            name,
            (this.queues.get(name) ?? []).filter((one) => one !== resolve),
          );
          reject(new DOMException("aborted", "AbortError"));
        });
      });
    } else this.queues.set(name, []);
    try {
      return await held({} as Lock);
    } finally {
      const next = this.queues.get(name)?.shift();
      if (next) next();
      else this.queues.delete(name);
    }
  }
}

class StagedChannel implements Channel {
  onmessage: ((message: MessageEvent<SharedMessage>) => void) | null = null;
  private closed = false;

  constructor(private readonly all: () => StagedChannel[]) {}

  postMessage(message: SharedMessage): void {
    const copy = structuredClone(message);
    for (const other of this.all())
      if (other !== this && !other.closed) other.onmessage?.({ data: copy } as MessageEvent);
  }

  close(): void {
    this.closed = true;
  }
}

/** One tab. */
export class StagedTab {
  readonly sources: StagedSource[] = [];
  readonly questions: { query: Query; answer: (delta: Delta) => void; refuse: (error: unknown) => void }[] =
    [];
  hidden = false;
  private now = 0;
  private timers: { id: number; at: number; call: () => void }[] = [];
  private nextId = 1;
  private visibilityChanged: () => void = () => undefined;
  /** Another request of the page was answered. */
  answered: () => void = () => undefined;
  readonly stream: LiveStream;

  constructor(browser: StagedBrowser | null = null) {
    const world: LiveWorld = {
      openSource: (url) => {
        const source = new StagedSource(new URL(url));
        this.sources.push(source);
        return source as unknown as EventSource;
      },
      delta: (query) => new Promise((answer, refuse) => this.questions.push({ query, answer, refuse })),
      later: (call, milliseconds) => {
        this.timers.push({ id: this.nextId, at: this.now + milliseconds, call });
        return this.nextId++;
      },
      never: (id) => {
        this.timers = this.timers.filter((timer) => timer.id !== id);
      },
      onAnswer: (listener) => {
        this.answered = listener;
      },
    };
    const visibility: Visibility = {
      hidden: () => this.hidden,
      onChange: (listener) => {
        this.visibilityChanged = listener;
      },
    };
    this.stream = new LiveStream({
      world,
      visibility,
      sharing: browser?.sharing ?? { locks: null, openChannel: null },
    });
  }

  get source(): StagedSource {
    return this.sources[this.sources.length - 1]!;
  }

  get open(): number {
    return this.sources.filter((source) => !source.closed).length;
  }

  async pass(milliseconds: number): Promise<void> {
    const end = this.now + milliseconds;
    for (;;) {
      await settle();
      const due = this.timers.filter((timer) => timer.at <= end).sort((one, other) => one.at - other.at)[0];
      if (!due) break;
      this.timers = this.timers.filter((timer) => timer !== due);
      this.now = due.at;
      due.call();
    }
    this.now = end;
    await settle();
  }

  async show(visible: boolean): Promise<void> {
    this.hidden = !visible;
    this.visibilityChanged();
    await settle();
  }
}

export async function settle(): Promise<void> {
  for (let turn = 0; turn < 20; turn += 1) await Promise.resolve();
}
