// The state all pages of one run share: its head, updated by the stream, and the settings of its charts.

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
  /** Time of the last update of the run, by the server's clock. */
  updatedAt = $state(live.now);
  /** Whether the link sets the smoothing, possibly to none. */
  readonly #smoothingWasNamed = place.query.has("smooth");
  /** Whether charts are over time because the run has no steps. */
  #isOverTime = false;

  constructor(readonly id: string) {
    this.head = new Resource(() => api.get<RunHead>(this.path("")));
    this.catalogue = new Resource(() => api.get<Catalogue>(this.path("keys")));
    this.sync = new ChartSync({ stream: live.stream, state: stateOf(place.query, preferences.axis) });
    this.settings = this.sync.state;
    const at = numberIn(place.query, "at");
    if (at !== null) this.sync.setCrosshair(at);
  }

  /** The newest row of the run. */
  get row(): RunRow | null {
    return this.fresh ?? this.head.data?.row ?? null;
  }

  /** A link to the current view; with the crosshair at `at`, if given. */
  link(at: number | null = null): string {
    return linkTo(location.href, this.sync.state, at);
  }

  /** The API path of a resource of this run. */
  path(what: string): string {
    return `runs/${encodeURIComponent(this.id)}${what ? `/${what}` : ""}`;
  }

  /** Fetches, listens, and keeps URL and charts in sync while the calling component is mounted. */
  start(): void {
    $effect(() => untrack(() => this.#begin()));
    $effect(() => this.sync.subscribe((state) => this.#changed(state)));
    $effect(() => {
      const requested = stateOf(place.query, preferences.axis);
      untrack(() => this.#follow(requested));
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
        this.updatedAt = live.now;
        this.#recallSmoothing(data.row.project);
        this.#chooseAxis(data.row);
        this.sync.set({});
      });
    });
  }

  /** Gives devices in charts the names the run uses. */
  #name(data: Catalogue): void {
    nameDevices(data.keys.flatMap((info) => info.places));
    this.sync.set({});
  }

  #begin(): () => void {
    // No stream for a run that does not exist: the server would refuse it again and again.
    void this.head.load().then(() => this.head.data && live.stream.subscribe(this.id, []));
    void this.catalogue.load();
    void this.pins.load();
    const stops = [
      live.stream.on("run", (row) => row.id === this.id && this.#onRow(row)),
      live.stream.on("resync", () => void this.head.load()),
    ];
    return () => {
      stops.forEach((stop) => stop());
      this.head.stop();
      this.catalogue.stop();
    };
  }

  #onRow(row: RunRow): void {
    const before = this.row;
    [this.fresh, this.updatedAt] = [row, live.now];
    this.#chooseAxis(row);
    if (before && before.status !== row.status) announcements.alert(`${row.name} is ${row.status}`);
    else if (row.step !== null)
      announcements.say(`Step ${row.step}${row.loss_last === null ? "" : `, loss ${number(row.loss_last)}`}`);
    if (before?.status !== row.status) void this.head.load();
    if (this.catalogue.data?.keys.length === 0 || before?.status !== row.status) this.catalogue.refresh(2);
    else this.catalogue.refresh(20);
  }

  /** Writes a change of the charts to the URL, if it is still that of this run. */
  #changed(state: SyncState): void {
    this.settings = state;
    if (isAtRun(this.id)) untrack(() => setQuery(queryOf(state, preferences.axis)));
  }

  /** Applies a change of the URL, by the back button or a link, to the charts. */
  #follow(requested: Partial<SyncState>): void {
    const now = queryOf(this.sync.state, preferences.axis);
    const then = queryOf({ ...this.sync.state, ...requested }, preferences.axis);
    if (JSON.stringify(now) !== JSON.stringify(then)) this.sync.set(requested);
  }

  /** Charts over steps show everything in one place as long as there are no steps. */
  #chooseAxis(row: RunRow): void {
    const { axis } = this.sync.state;
    if (this.#isOverTime && row.step !== null) {
      this.#isOverTime = false;
      if (axis === "active") this.setAxis("step");
    } else if (row.step === null && axis === "step" && !place.query.has("x")) {
      this.#isOverTime = true;
      this.setAxis("active");
    }
  }

  #recallSmoothing(project: string): void {
    const saved = preferences.projectSmoothing[project] ?? preferences.smoothing;
    if (saved && !this.#smoothingWasNamed && this.sync.state.smoothing.amount === 0) this.smooth(saved, false);
  }

  /** Smooths all charts, and saves the amount for the project. */
  smooth(amount: number, remembered = true): void {
    const valid = Math.min(0.999, Math.max(0, amount));
    this.sync.set({ smoothing: { ...this.sync.state.smoothing, amount: valid } });
    const project = this.row?.project ?? "";
    if (remembered) prefer({ projectSmoothing: { ...preferences.projectSmoothing, [project]: valid } });
  }

  /** The next axis that this run has. */
  nextAxis(): void {
    const usable = (this.head.data?.axes ?? []).filter((axis) => axis.why_not === null);
    const at = usable.findIndex((axis) => axis.name === this.sync.state.axis);
    const next = usable[(at + 1) % usable.length];
    if (next) this.setAxis(next.name);
  }

  /** Changes the x axis and resets the window, which belongs to the old axis. */
  setAxis(axis: AxisName): void {
    this.sync.set({ axis, range: null, follow: true });
  }
}

const RUN = Symbol("run");

/** Provides the run to components inside. */
export function provideRun(view: RunView): void {
  setContext(RUN, view);
}

/** The run this component is shown in. */
export function useRun(): RunView {
  return getContext<RunView>(RUN);
}
