// Keeps one connection to the live stream, and falls back to polling where streams are blocked.

import { api, ApiError, apiUrl, onAnswer, type Query } from "./api";
import { parseShown } from "./shown_text";
import type { StreamEventName } from "./types";

export interface Topic {
  run: string | null;
  keys: string[];
}

export interface Delta {
  cursor: string;
  events: { event: StreamEventName; data: unknown }[];
}

/** The browser functions that the connection uses; tests replace them. */
export interface LiveWorld {
  openSource(url: string): EventSource;
  delta(query: Query, signal: AbortSignal): Promise<Delta>;
  later(call: () => void, milliseconds: number): number;
  never(timer: number): void;
  /** Calls when any request of the page got a response. */
  onAnswer(listener: () => void): void;
}

export interface ConnectionListener {
  event(name: StreamEventName, data: unknown, cursor: string): void;
  state(state: "live" | "retrying" | "off", retryInS: number, problem: string): void;
}

export const EVENT_NAMES: StreamEventName[] = [
  "hello",
  "run",
  "points",
  "alert",
  "finding",
  "mark",
  "runs",
  "resync",
];
const FAILED_STREAMS_BEFORE_ASKING = 2;
const FIRST_WORD_MS = 8000;
const BACK_OFF_S = [1, 2, 4, 8, 15, 30];
const STREAM_AGAIN_MS = 120_000;
const MIN_BETWEEN_QUESTIONS_MS = 500;

export const browserWorld: LiveWorld = {
  openSource: (url) => new EventSource(url),
  delta: (query, signal) => api.get<Delta>("delta", query, signal),
  later: (call, milliseconds) => setTimeout(call, milliseconds) as unknown as number,
  never: (timer) => clearTimeout(timer),
  onAnswer,
};

export class Connection {
  private topic: Topic | null = null;
  private cursor = "";
  private source: EventSource | null = null;
  private question: AbortController | null = null;
  private readonly timers = new Set<number>();
  private failedStreams = 0;
  private attempt = 0;

  constructor(
    private readonly listener: ConnectionListener,
    private readonly world: LiveWorld = browserWorld,
  ) {}

  /** Listens to a topic from a cursor; an empty cursor means from now. */
  open(topic: Topic, since: string): void {
    this.stop();
    this.topic = topic;
    this.cursor = since;
    this.connect();
  }

  close(): void {
    this.stop();
    this.topic = null;
  }

  retryNow(): void {
    if (this.topic === null || this.source !== null || this.question !== null) return;
    this.stop();
    this.listener.state("retrying", 0, "");
    this.connect();
  }

  private connect(): void {
    if (this.failedStreams >= FAILED_STREAMS_BEFORE_ASKING) this.ask();
    else this.listen();
  }

  private query(): Query {
    const { run, keys } = this.topic!;
    return {
      run: run ?? undefined,
      keys: keys.length ? keys.join(",") : undefined,
      since: this.cursor || undefined,
    };
  }

  private listen(): void {
    const source = this.world.openSource(apiUrl("stream", this.query()));
    this.source = source;
    // A proxy that buffers the stream opens it and then sends nothing.
    const silence = this.after(FIRST_WORD_MS, () =>
      this.streamFailed("The stream opened but stayed silent."),
    );
    for (const name of EVENT_NAMES) {
      source.addEventListener(name, (message: MessageEvent<string>) => {
        if (this.source !== source) return;
        if (name === "hello") {
          this.cancel(silence);
          this.arrived();
          this.failedStreams = 0;
        }
        this.deliver(name, parseShown(message.data), message.lastEventId);
      });
    }
    source.addEventListener("error", () => {
      if (this.source === source) this.streamFailed("The server closed the stream or does not answer.");
    });
  }

  private streamFailed(problem: string): void {
    this.stop();
    this.failedStreams += 1;
    if (this.failedStreams === FAILED_STREAMS_BEFORE_ASKING) this.ask();
    else this.retryLater(problem);
  }

  private ask(): void {
    const question = new AbortController();
    this.question = question;
    this.after(STREAM_AGAIN_MS, () => {
      this.stop();
      this.failedStreams = FAILED_STREAMS_BEFORE_ASKING - 1;
      this.connect();
    });
    void this.askOn(question);
  }

  private async askOn(question: AbortController): Promise<void> {
    try {
      while (this.question === question) {
        const answer = await this.world.delta(this.query(), question.signal);
        if (this.question !== question) return;
        this.arrived();
        for (const { event, data } of answer.events) this.deliver(event, data, "");
        this.cursor = answer.cursor;
        if (answer.events.length === 0) {
          await new Promise<void>((resolve) => this.after(MIN_BETWEEN_QUESTIONS_MS, resolve));
        }
      }
    } catch (error) {
      if (this.question !== question) return;
      this.stop();
      const status = error instanceof ApiError ? error.status : 0;
      const problem = error instanceof Error ? error.message : String(error);
      if (status === 401 || status === 403 || status === 404) this.listener.state("off", 0, problem);
      else this.retryLater(problem);
    }
  }

  private deliver(name: StreamEventName, data: unknown, id: string): void {
    if (name === "hello") this.cursor ||= (data as { cursor: string }).cursor;
    if (id) this.cursor = id;
    this.listener.event(name, data, this.cursor);
  }

  private arrived(): void {
    this.attempt = 0;
    this.listener.state("live", 0, "");
  }

  private retryLater(problem: string): void {
    const wait = BACK_OFF_S[Math.min(this.attempt, BACK_OFF_S.length - 1)]!;
    this.attempt += 1;
    const tick = (left: number): void => {
      this.listener.state("retrying", left, problem);
      this.after(1000, () => (left <= 1 ? this.connect() : tick(left - 1)));
    };
    tick(wait);
  }

  private after(milliseconds: number, call: () => void): number {
    const timer = this.world.later(() => {
      this.timers.delete(timer);
      call();
    }, milliseconds);
    this.timers.add(timer);
    return timer;
  }

  private cancel(timer: number): void {
    this.timers.delete(timer);
    this.world.never(timer);
  }

  private stop(): void {
    this.source?.close();
    this.source = null;
    this.question?.abort();
    this.question = null;
    for (const timer of this.timers) this.world.never(timer);
    this.timers.clear();
  }
}
