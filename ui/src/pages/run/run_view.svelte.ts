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
import { linkTo, numberIn, queryOf, stateOf } from "./chart_query";
import { Pins } from "./pins.svelte";

export class RunView {
  readonly head: Resource<RunHead>;
  readonly catalogue: Resource<Catalogue>;
  readonly sync: ChartSync;
  readonly pins = new Pins(() => this.row?.project ?? "");
  settings = $state.raw<SyncState>()!;
  fresh = $state.raw<RunRow | null>(null);
  /** When the run was last told of, by the server's clock. */
  toldAt = $state(live.now);
  /** Somebody's link said how much to smooth: nothing at all is an answer too. */
  readonly #smoothingWasNamed = place.query.has("smooth");

  constructor(readonly id: string) {
    this.head = new Resource(() => api.get<RunHead>(this.path("")));
    this.catalogue = new Resource(() => api.get<Catalogue>(this.path("keys")));
    this.sync = new ChartSync({ stream: live.stream, state: stateOf(place.query, preferences.axis) });
    this.settings = this.sync.state;
    const at = numberIn(place.query, "at");
    if (at !== null) this.sync.setCrosshair(at);
  }

  /** The run as it stands now. */
  get row(): RunRow | null {
    return this.fresh ?? this.head.data?.row ?? null;
  }

  /** The address of what is shown, for somebody else; with the crosshair at a place where one is given. */
  link(at: number | null = null): string {
    return linkTo(location.href, this.sync.state, at);
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
      const asked = stateOf(place.query, preferences.axis);
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
        this.toldAt = live.now;
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
    [this.fresh, this.toldAt] = [row, live.now];
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
    if (isAtRun(this.id)) untrack(() => setQuery(queryOf(state, preferences.axis)));
  }

  /** A change of the address, by the back button or a link, goes into the charts. */
  #follow(asked: Partial<SyncState>): void {
    const now = queryOf(this.sync.state, preferences.axis);
    const then = queryOf({ ...this.sync.state, ...asked }, preferences.axis);
    if (JSON.stringify(now) !== JSON.stringify(then)) this.sync.set(asked);
  }

  #recallSmoothing(project: string): void {
    const kept = preferences.projectSmoothing[project] ?? preferences.smoothing;
    if (kept && !this.#smoothingWasNamed && this.sync.state.smoothing.amount === 0) this.smooth(kept, false);
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

const RUN = Symbol("run");

/** Makes the run known to what is shown inside. */
export function provideRun(view: RunView): void {
  setContext(RUN, view);
}

/** The run this component is shown in. */
export function useRun(): RunView {
  return getContext<RunView>(RUN);
}
