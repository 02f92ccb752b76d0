// The state all charts of a page share: x window, crosshair, axis, smoothing, following.

import { axisMap, StepClock, storedAxis, whyNot, type AxisMap } from "../../data/axis";
import type { LiveStream } from "../../data/live";
import { fetchSeries } from "../../data/series";
import { NO_SMOOTHING, type Smoothing } from "../../data/smoothing";
import type { AxisChoice, AxisName, Segment, Series, SeriesAxis } from "../../data/types";
import type { Bounds } from "../series/y_bounds";
import type { Mergeable } from "../series/merge";

export interface Range {
  from: number;
  to: number;
}

/** The part of the state that is kept in the URL. */
export interface SyncState {
  /** The window in units of `axis`; null shows everything. */
  range: Range | null;
  axis: AxisName;
  smoothing: Smoothing;
  logX: boolean;
  logY: boolean;
  band: boolean;
  line: "mean" | "last";
  clip: boolean;
  /** The right edge moves with new data; false while a window is pinned. */
  follow: boolean;
}

/** A position in a chart, by step and time. */
export interface Spot {
  step: number | null;
  time: number | null;
}

/** Actions of a chart that the page performs. */
export interface ChartActions {
  openStep?(step: number): void;
  annotate?(where: Spot): void;
  copyLink?(range: Range | null, where: Spot): void;
  /** Asks for a rule; `run` is null where several runs are shown. */
  alert?(rule: { name: string; condition: string; run: string | null }): void;
}

export interface SyncOptions {
  stream?: LiveStream | null;
  axes?: AxisChoice[];
  /** Of the run that is shown; `setSegments` sets those of others. */
  segments?: Segment[];
  actions?: ChartActions;
  state?: Partial<SyncState>;
}

const DEFAULTS: SyncState = {
  range: null,
  axis: "step",
  smoothing: NO_SMOOTHING,
  logX: false,
  logY: false,
  band: true,
  line: "mean",
  clip: false,
  follow: true,
};
const MAPPING_BUCKETS = 2000;

type CrosshairListener = (x: number | null, source: unknown) => void;

export class ChartSync {
  stream: LiveStream | null;
  actions: ChartActions;
  /** Colours a person has chosen, by the name of a line; shared by all charts. */
  readonly colours = new Map<string, string>();
  /** New names of lines, by their original name. */
  readonly names = new Map<string, string>();
  /** Lines that come first and never fade, by their original name. */
  readonly pinned = new Set<string>();
  /** The fixed y ranges, by what a chart shows. */
  readonly bounds = new Map<string, Bounds>();
  /** Which step was at which time. */
  readonly clock = new StepClock();
  private readonly offers = new Set<readonly Mergeable[]>();
  private base: Spot | null = null;
  private axisList: AxisChoice[];
  private segmentsByRun = new Map<string, Segment[]>();
  private readonly mappings = new Map<string, Series | null>();
  private readonly extents = new Map<unknown, Range>();
  private current: SyncState;
  private readonly listeners = new Set<(state: SyncState) => void>();
  private readonly crosshairListeners = new Set<CrosshairListener>();
  private crosshairAt: number | null = null;
  private crosshairSource: unknown = null;
  private frameAsked = false;

  constructor(
    options: SyncOptions = {},
    private readonly nextFrame: (call: () => void) => void = (call) => void requestAnimationFrame(call),
  ) {
    this.stream = options.stream ?? null;
    this.actions = options.actions ?? {};
    this.axisList = options.axes ?? [];
    this.segmentsByRun.set("", options.segments ?? []);
    this.current = { ...DEFAULTS, ...options.state };
  }

  get state(): Readonly<SyncState> {
    return this.current;
  }

  get axes(): AxisChoice[] {
    return this.axisList;
  }

  set axes(axes: AxisChoice[]) {
    this.axisList = axes;
    this.mappings.clear();
    this.notify();
  }

  get segments(): Segment[] {
    return this.segmentsByRun.get("") ?? [];
  }

  set segments(segments: Segment[]) {
    this.setSegments("", segments);
  }

  /** Sets the segments of an overlaid run. */
  setSegments(run: string, segments: Segment[]): void {
    this.segmentsByRun.set(run, segments);
    this.notify();
  }

  /** The number of segments of a run; 0 where it is unknown. */
  segmentCount(run: string): number {
    return (this.segmentsByRun.get(run) ?? this.segments).length;
  }

  /** All charts of the page, including those not drawn yet; with repetitions. */
  get offered(): Mergeable[] {
    return [...this.offers].flat();
  }

  /** Registers charts that others can be merged with; returns a function that removes them. */
  offer(charts: readonly Mergeable[]): () => void {
    this.offers.add(charts);
    return () => this.offers.delete(charts);
  }

  /** The position whose values all charts are compared with; null without one. */
  get baseline(): Spot | null {
    return this.base;
  }

  set baseline(spot: Spot | null) {
    this.base = spot;
    this.notify();
  }

  /** Calls at once and after each change, as a Svelte store does; returns a function that stops it. */
  subscribe(listener: (state: SyncState) => void): () => void {
    this.listeners.add(listener);
    listener(this.current);
    return () => this.listeners.delete(listener);
  }

  /** Changes any of the shared settings; another axis shows everything again. */
  set(change: Partial<SyncState>): void {
    if (change.axis !== undefined && change.axis !== this.current.axis) {
      this.extents.clear();
      change = { range: null, follow: true, ...change };
    }
    this.current = { ...this.current, ...change };
    this.notify();
  }

  /** Zooms all charts and stops following; null shows everything and follows again. */
  zoom(range: Range | null): void {
    const proper = range !== null && range.to > range.from ? range : null;
    this.set({ range: proper, follow: proper === null });
  }

  reset(): void {
    this.zoom(null);
  }

  /** Goes back to the newest data. */
  followLive(): void {
    this.zoom(null);
  }

  /** Zooms in (below 1) or out (above 1) around a position or the middle; beyond all data it resets. */
  zoomBy(factor: number, around?: number): void {
    const window = this.window;
    const whole = this.extent;
    if (!window || !whole) return;
    const centre = around ?? this.crosshairAt ?? (window.from + window.to) / 2;
    const range = {
      from: centre - (centre - window.from) * factor,
      to: centre + (window.to - centre) * factor,
    };
    this.zoom(range.from <= whole.from && range.to >= whole.to ? null : range);
  }

  /** Moves a zoomed window by this much. */
  panBy(distance: number): void {
    const { range } = this.current;
    if (range) this.zoom({ from: range.from + distance, to: range.to + distance });
  }

  /** The window that is shown; null before anything was loaded. */
  get window(): Range | null {
    return this.current.range ?? this.extent;
  }

  /** From the first to the last x of all charts. */
  get extent(): Range | null {
    let extent: Range | null = null;
    for (const { from, to } of this.extents.values()) {
      extent = extent ? { from: Math.min(extent.from, from), to: Math.max(extent.to, to) } : { from, to };
    }
    return extent;
  }

  /** Sets the range of a chart's data; null removes the chart. */
  reach(chart: unknown, range: Range | null): void {
    const before = this.extent;
    if (range) this.extents.set(chart, range);
    else this.extents.delete(chart);
    const after = this.extent;
    if (before?.from !== after?.from || before?.to !== after?.to) this.notify();
  }

  /** The unit the server is asked in. */
  get storedAxis(): SeriesAxis {
    return storedAxis(this.current.axis);
  }

  /** Why an axis cannot be chosen; null when it can. */
  whyNot(axis: AxisName): string | null {
    return whyNot(this.axisList, axis);
  }

  /** Maps this run's steps or seconds to x. */
  mapOf(run: string): AxisMap {
    const segments = this.segmentsByRun.get(run) ?? this.segments;
    return axisMap(this.current.axis, segments, this.mappings.get(`${run}\n${this.mappingKey}`) ?? null);
  }

  /** Loads the series that the axis needs; charts wait for it. */
  async prepare(run: string): Promise<void> {
    const key = this.mappingKey;
    const name = `${run}\n${key}`;
    if (key === null || this.mappings.has(name)) return;
    const [series] = await fetchSeries(run, [key], { axis: "step", buckets: MAPPING_BUCKETS, merge: true });
    this.mappings.set(name, series ?? null);
    // Components without a run, such as the event lane, use the first one.
    if (!this.mappings.has(`\n${key}`)) this.mappings.set(`\n${key}`, series ?? null);
    this.notify();
  }

  private get mappingKey(): string | null {
    const axis = this.axisList.find((candidate) => candidate.name === this.current.axis);
    return axis && storedAxis(axis.name) === "step" && axis.name !== "step" ? axis.key : null;
  }

  get crosshair(): number | null {
    return this.crosshairAt;
  }

  /** Moves the crosshair of all charts, once per frame; `source` is the chart that moved it. */
  setCrosshair(x: number | null, source: unknown = null): void {
    this.crosshairAt = x;
    this.crosshairSource = source;
    if (this.frameAsked) return;
    this.frameAsked = true;
    this.nextFrame(() => {
      this.frameAsked = false;
      for (const listener of [...this.crosshairListeners]) listener(this.crosshairAt, this.crosshairSource);
    });
  }

  onCrosshair(listener: CrosshairListener): () => void {
    this.crosshairListeners.add(listener);
    return () => this.crosshairListeners.delete(listener);
  }

  /** The step and time at x; null where unknown. */
  spotAt(x: number, run: string): Spot {
    const stored = this.mapOf(run).toStored(x);
    if (stored === null) return { step: null, time: null };
    if (this.storedAxis === "step")
      return { step: Math.max(0, Math.round(stored)), time: this.clock.timeAt(stored) };
    return { step: this.clock.stepAt(stored), time: stored };
  }

  /** The x of a step or time of a run; null where unknown. */
  xOf(where: Spot, run: string): number | null {
    const { step, time } = where;
    const stored =
      this.storedAxis === "step"
        ? (step ?? (time === null ? null : this.clock.stepAt(time)))
        : (time ?? (step === null ? null : this.clock.timeAt(step)));
    return stored === null ? null : this.mapOf(run).toX(stored);
  }

  private notify(): void {
    for (const listener of [...this.listeners]) listener(this.current);
  }
}
