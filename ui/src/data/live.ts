// Receives live updates: one stream per tab, resumed from its cursor, shared between tabs.
//
// The stream is closed while the tab is hidden or paused, and then continues from its cursor, so nothing is
// missed. If keys are added, the stream is opened again from the previous cursor: points may then come twice, and
// charts drop those whose time they have seen.

import { browserWorld, Connection, type LiveWorld } from "./live_connection";
import { browserSharing, Sharing, type SharedMessage, type SharingWorld } from "./live_sharing";
import type { StreamEventName, StreamEvents } from "./types";

export type LiveState = "live" | "paused" | "retrying" | "off";
type Listener = (data: never) => void;
type Event = Extract<SharedMessage, { kind: "event" }>;

/** The visibility of the tab. */
export interface Visibility {
  hidden(): boolean;
  onChange(listener: () => void): void;
}

export interface LiveOptions {
  world?: LiveWorld;
  sharing?: SharingWorld;
  visibility?: Visibility;
}

const GATHER_KEYS_MS = 100;

export class LiveStream {
  state: LiveState = "off";
  /** Seconds until the next attempt, while retrying. */
  retryInS = 0;
  /** Why there is no stream; empty if there is one. */
  problem = "";
  private readonly world: LiveWorld;
  private readonly sharingWorld: SharingWorld;
  private readonly visibility: Visibility;
  private readonly tab = Math.random().toString(36).slice(2);
  private readonly listeners = new Map<StreamEventName, Set<Listener>>();
  private readonly stateListeners = new Set<(state: LiveState, retryInS: number) => void>();
  private readonly connection: Connection;
  private sharing: Sharing | null = null;
  private leads = false;
  private run: string | null = null;
  private subscribed = false;
  private pausedByUser = false;
  private cursor = "";
  private baseKeys: string[] = [];
  private readonly chartKeys = new Map<string, number>();
  private readonly keysOfOthers = new Map<string, string[]>();
  private openKeys: Set<string> | null = null;
  private gathering: { timer: number; since: string } | null = null;
  /** Events of the leading tab that came while this tab was catching up. */
  private held: Event[] | null = null;

  constructor(options: LiveOptions = {}) {
    this.world = options.world ?? browserWorld;
    this.sharingWorld = options.sharing ?? browserSharing();
    this.visibility = options.visibility ?? documentVisibility;
    this.connection = new Connection(
      {
        event: (name, data, cursor) => this.fromServer({ kind: "event", name, data, cursor }),
        state: (state, retryInS, problem) => {
          this.sharing?.post({ kind: "state", state, retryInS, problem });
          this.become(state, retryInS, problem);
        },
      },
      this.world,
    );
    this.visibility.onChange(() => this.update());
    this.world.onAnswer(() => this.state === "retrying" && this.retryNow());
  }

  /** Sets the run (null for the list of runs) and keys to follow, and the cursor to continue from. */
  subscribe(run: string | null, keys: string[] = [], since = ""): void {
    if (this.subscribed && run === this.run) {
      this.baseKeys = keys;
      this.gatherKeys();
      return;
    }
    this.deactivate();
    this.run = run;
    this.subscribed = true;
    this.baseKeys = keys;
    this.cursor = since;
    this.update();
  }

  /** Adds keys while a chart shows them; returns a function that removes them. */
  want(run: string, keys: string[]): () => void {
    const names = keys.map((key) => `${run}\n${key}`);
    for (const name of names) this.chartKeys.set(name, (this.chartKeys.get(name) ?? 0) + 1);
    this.gatherKeys();
    let taken = true;
    return () => {
      if (!taken) return;
      taken = false;
      for (const name of names) {
        const left = (this.chartKeys.get(name) ?? 1) - 1;
        if (left > 0) this.chartKeys.set(name, left);
        else this.chartKeys.delete(name);
      }
    };
  }

  /** Calls for each event of that name; returns a function that stops it. */
  on<Name extends StreamEventName>(event: Name, listener: (data: StreamEvents[Name]) => void): () => void {
    const set = this.listeners.get(event) ?? new Set<Listener>();
    this.listeners.set(event, set);
    set.add(listener as Listener);
    return () => set.delete(listener as Listener);
  }

  /** Calls at once and when `state` or `retryInS` changes. */
  onState(listener: (state: LiveState, retryInS: number) => void): () => void {
    this.stateListeners.add(listener);
    listener(this.state, this.retryInS);
    return () => this.stateListeners.delete(listener);
  }

  pause(): void {
    this.pausedByUser = true;
    this.update();
  }

  resume(): void {
    this.pausedByUser = false;
    this.update();
  }

  /** Retries at once instead of waiting for the countdown. */
  retryNow(): void {
    if (this.leads) this.connection.retryNow();
    else this.sharing?.post({ kind: "retry" });
  }

  close(): void {
    this.subscribed = false;
    this.update();
  }

  private update(): void {
    const active = this.subscribed && !this.pausedByUser && !this.visibility.hidden();
    if (active && this.sharing === null) this.activate();
    if (!active) this.deactivate();
    if (!this.subscribed) this.become("off");
    else if (this.pausedByUser) this.become("paused");
  }

  private activate(): void {
    const name = `stepscope:${new URL(".", document.baseURI).href}:${this.run ?? ""}`;
    this.sharing = new Sharing(
      name,
      {
        lead: () => {
          this.leads = true;
          // The cursor is still the one before catching up: the stream itself sends what was missed.
          this.held = null;
          this.openStream(this.cursor);
        },
        follow: () => this.follow(),
        message: (message) => this.fromTab(message),
      },
      this.sharingWorld,
    );
  }

  private deactivate(): void {
    if (this.sharing === null) return;
    this.sharing.post({ kind: "leave", tab: this.tab });
    this.sharing.leave();
    this.sharing = null;
    this.leads = false;
    this.connection.close();
    this.openKeys = null;
    this.keysOfOthers.clear();
    this.held = null;
    if (this.gathering) this.world.never(this.gathering.timer);
    this.gathering = null;
  }

  private follow(): void {
    this.sharing?.post({ kind: "want", tab: this.tab, keys: this.ownKeys() });
    if (this.cursor !== "") void this.catchUp();
  }

  /** Requests once what the leading tab received while this tab was hidden. */
  private async catchUp(): Promise<void> {
    const held: Event[] = [];
    this.held = held;
    const keys = this.ownKeys();
    try {
      const query = {
        run: this.run ?? undefined,
        keys: keys.length ? keys.join(",") : undefined,
        since: this.cursor,
      };
      const answer = await this.world.delta(query, new AbortController().signal);
      if (this.held !== held) return;
      for (const { event, data } of answer.events) this.dispatch(event, data);
      this.cursor = answer.cursor;
    } catch {
      // What was missed cannot be fetched: everything that is shown is loaded again.
      if (this.held === held)
        this.dispatch("resync", { why: "The page could not catch up with what it missed." });
    }
    if (this.held !== held) return;
    this.held = null;
    for (const event of held) this.take(event);
  }

  private openStream(since: string): void {
    this.openKeys = this.allKeys();
    this.connection.open({ run: this.run, keys: [...this.openKeys].sort() }, since);
  }

  private fromServer(event: Event): void {
    this.sharing?.post(event);
    this.take(event);
  }

  private fromTab(message: SharedMessage): void {
    switch (message.kind) {
      case "event":
        if (this.held) this.held.push(message);
        else this.take(message);
        break;
      case "state":
        this.become(message.state, message.retryInS, message.problem);
        break;
      case "leading":
        this.sharing?.post({ kind: "want", tab: this.tab, keys: this.ownKeys() });
        break;
      case "retry":
        if (this.leads) this.connection.retryNow();
        break;
      case "leave":
        this.keysOfOthers.delete(message.tab);
        break;
      case "want":
        if (!this.leads) break;
        this.keysOfOthers.set(message.tab, message.keys);
        this.sharing?.post({
          kind: "state",
          state: this.state === "paused" ? "off" : this.state,
          retryInS: this.retryInS,
          problem: this.problem,
        });
        this.gatherKeys();
    }
  }

  private take(event: Event): void {
    if (event.cursor) this.cursor = event.cursor;
    this.dispatch(event.name, event.data);
  }

  private dispatch(name: StreamEventName, data: unknown): void {
    for (const listener of [...(this.listeners.get(name) ?? [])]) listener(data as never);
  }

  /** Waits a moment for more charts, then opens the stream again if it lacks keys. */
  private gatherKeys(): void {
    if (this.sharing === null || this.gathering !== null) return;
    const timer = this.world.later(() => {
      const since = this.gathering?.since || this.cursor;
      this.gathering = null;
      if (!this.leads) this.sharing?.post({ kind: "want", tab: this.tab, keys: this.ownKeys() });
      else if (![...this.allKeys()].every((key) => this.openKeys?.has(key))) this.openStream(since);
    }, GATHER_KEYS_MS);
    this.gathering = { timer, since: this.cursor };
  }

  private ownKeys(): string[] {
    const prefix = `${this.run}\n`;
    const charts = [...this.chartKeys.keys()]
      .filter((name) => name.startsWith(prefix))
      .map((name) => name.slice(prefix.length));
    return [...new Set([...this.baseKeys, ...charts])];
  }

  private allKeys(): Set<string> {
    return new Set([...this.ownKeys(), ...[...this.keysOfOthers.values()].flat()]);
  }

  private become(state: LiveState, retryInS = 0, problem = ""): void {
    if (this.pausedByUser && this.subscribed && state !== "paused") return;
    if (state === this.state && retryInS === this.retryInS && problem === this.problem) return;
    [this.state, this.retryInS, this.problem] = [state, retryInS, problem];
    for (const listener of [...this.stateListeners]) listener(state, retryInS);
  }
}

const documentVisibility: Visibility = {
  hidden: () => document.hidden,
  onChange: (listener) => document.addEventListener("visibilitychange", listener),
};
