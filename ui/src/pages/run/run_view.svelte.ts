// What all pages of one run share: its head, kept fresh by the stream, and the settings of its charts.

import { getContext, setContext, untrack } from "svelte";
import { announcements } from "../../app/announce.svelte";
import { live } from "../../app/live.svelte";
import { prefer, preferences } from "../../app/preferences.svelte";
import { Resource } from "../../app/resource.svelte";
import { isAtRun, place, setQuery } from "../../app/router.svelte";
import { ChartSync, nameDevices, type SyncState } from "../../chart";
import { api, type AxisName, type Catalogue, type RunHead, type RunRow } from "../../data";
import { number } from "../../format";
import { Pins } from "./pins.svelte";

const AXES: AxisName[] = ["step", "epoch", "samples", "tokens", "active", "process", "wall"];

export class RunView {
  readonly head: Resource<RunHead>;
  readonly catalogue: Resource<Catalogue>;
  readonly sync: ChartSync;
  readonly pins = new Pins(() => this.row?.project ?? "");
  settings = $state.raw<SyncState>()!;
  fresh = $state.raw<RunRow | null>(null);

  constructor(readonly id: string) {
    this.head = new Resource(() => api.get<RunHead>(this.path("")));
    this.catalogue = new Resource(() => api.get<Catalogue>(this.path("keys")));
    this.sync = new ChartSync({ stream: live.stream, state: stateOf(place.query) });
    this.settings = this.sync.state;
    const at = numberIn(place.query, "at");
    if (at !== null) this.sync.setCrosshair(at);
  }

  /** The run as it stands now. */
  get row(): RunRow | null {
    return this.fresh ?? this.head.data?.row ?? null;
  }

  /** The address of something of this run in the API. */
  path(what: string): string {
    return `runs/${encodeURIComponent(this.id)}${what ? `/${what}` : ""}`;
  }

  /** Fetches, listens, and keeps address and charts in step while the calling component is shown. */
  attend(): void {
    $effect(() => untrack(() => this.#begin()));
    $effect(() => this.sync.subscribe((state) => this.#changed(state)));
    $effect(() => {
      const asked = stateOf(place.query);
      untrack(() => this.#follow(asked));
    });
    $effect(() => {
      const data = this.catalogue.data;
      if (data) untrack(() => this.#name(data));
    });
    $effect(() => {
      const data = this.head.data;
      if (!data) return;
      untrack(() => {
        [this.sync.axes, this.sync.segments, this.fresh] = [data.axes, data.segments, null];
        this.#recallSmoothing(data.row.project);
        this.sync.set({});
      });
    });
  }

  /** Charts call devices what the run calls them. */
  #name(data: Catalogue): void {
    nameDevices(data.keys.flatMap((info) => info.places));
    this.sync.set({});
  }

  #begin(): () => void {
    // A run that does not exist is not listened to: the server would refuse again and again.
    void this.head.load().then(() => this.head.data && live.stream.subscribe(this.id, []));
    void this.catalogue.load();
    void this.pins.load();
    const stops = [
      live.stream.on("run", (row) => row.id === this.id && this.#news(row)),
      live.stream.on("resync", () => void this.head.load()),
    ];
    return () => {
      stops.forEach((stop) => stop());
      this.head.stop();
      this.catalogue.stop();
    };
  }

  #news(row: RunRow): void {
    const before = this.row;
    this.fresh = row;
    if (before && before.status !== row.status) announcements.alarm(`${row.name} is ${row.status}`);
    else if (row.step !== null)
      announcements.say(`Step ${row.step}${row.loss_last === null ? "" : `, loss ${number(row.loss_last)}`}`);
    if (before?.status !== row.status) void this.head.load();
    if (this.catalogue.data?.keys.length === 0 || before?.status !== row.status) this.catalogue.refresh(2);
    else this.catalogue.refresh(20);
  }

  /** A change of the charts goes into the address, as long as that is still the run's. */
  #changed(state: SyncState): void {
    this.settings = state;
    if (isAtRun(this.id)) untrack(() => setQuery(queryOf(state)));
  }

  /** A change of the address, by the back button or a link, goes into the charts. */
  #follow(asked: Partial<SyncState>): void {
    const now = queryOf(this.sync.state);
    const then = queryOf({ ...this.sync.state, ...asked });
    if (JSON.stringify(now) !== JSON.stringify(then)) this.sync.set(asked);
  }

  #recallSmoothing(project: string): void {
    const kept = preferences.projectSmoothing[project] ?? preferences.smoothing;
    if (kept && !place.query.has("smooth") && this.sync.state.smoothing.amount === 0)
      this.smooth(kept, false);
  }

  /** Smooths all charts; remembered for the project. */
  smooth(amount: number, remembered = true): void {
    const kept = Math.min(0.999, Math.max(0, amount));
    this.sync.set({ smoothing: { ...this.sync.state.smoothing, amount: kept } });
    const project = this.row?.project ?? "";
    if (remembered) prefer({ projectSmoothing: { ...preferences.projectSmoothing, [project]: kept } });
  }

  /** The next axis that this run has. */
  nextAxis(): void {
    const usable = (this.head.data?.axes ?? []).filter((axis) => axis.why_not === null);
    const at = usable.findIndex((axis) => axis.name === this.sync.state.axis);
    const next = usable[(at + 1) % usable.length];
    if (next) this.setAxis(next.name);
  }

  /** Another axis shows everything: a window of one is none of another. */
  setAxis(axis: AxisName): void {
    this.sync.set({ axis, range: null, follow: true });
  }
}

function numberIn(query: URLSearchParams, name: string): number | null {
  const text = query.get(name);
  return text === null || text === "" || Number.isNaN(Number(text)) ? null : Number(text);
}

function stateOf(query: URLSearchParams): Partial<SyncState> {
  const number = (name: string): number | null => numberIn(query, name);
  const [from, to] = [number("from"), number("to")];
  const axis = (query.get("x") ?? preferences.axis) as AxisName;
  const range = from !== null && to !== null && from < to ? { from, to } : null;
  return {
    axis: AXES.includes(axis) ? axis : "step",
    range,
    follow: range === null,
    logY: query.get("log") === "true",
    band: query.get("band") !== "off",
    clip: query.get("clip") === "true",
    ...(query.has("smooth") ? { smoothing: { kind: "ema" as const, amount: number("smooth") ?? 0 } } : {}),
  };
}

function queryOf(state: SyncState): Record<string, string | number | boolean> {
  return {
    x: state.axis === preferences.axis ? "" : state.axis,
    from: state.range ? Number(state.range.from.toPrecision(12)) : "",
    to: state.range ? Number(state.range.to.toPrecision(12)) : "",
    smooth: state.smoothing.amount || "",
    log: state.logY,
    band: state.band ? "" : "off",
    clip: state.clip,
  };
}

const RUN = Symbol("run");

/** Makes the run known to what is shown inside. */
export function provideRun(view: RunView): void {
  setContext(RUN, view);
}

/** The run this component is shown in. */
export function useRun(): RunView {
  return getContext<RunView>(RUN);
}
