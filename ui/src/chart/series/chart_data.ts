// Keeps the data of one chart up to date: loads it, adds live points, refines a zoomed window.

import { seriesLoader, type SeriesLoader } from "../../data/batch";
import { ApiError } from "../../data/api";
import type { AxisName, PointsOfSeries, RunRow, StreamEvents } from "../../data/types";
import type { ChartSync, Range } from "../control/sync";
import { ownerName, SourceLine } from "./source";

export interface ChartDataSpec {
  /** The runs that are shown, by id. */
  runs: string[];
  keys: string[];
  per: "rank" | "device" | "host" | "none";
}

/** While a window moves, finer data is requested only after it has rested for this time. */
export const REFINE_AFTER_MS = 150;
const LOAD_AGAIN_AFTER_MS = 1000;
/** The requested part extends the window by this share on both sides, so that a small pan needs no request. */
const MARGIN = 0.25;

export class ChartData {
  lines: SourceLine[] = [];
  /** The axis the data was requested for; data of another axis cannot be drawn. */
  axis: AxisName | null = null;
  /** Keys that none of the runs has. */
  missing: string[] = [];
  state: "empty" | "loading" | "ready" | "failed" = "empty";
  problem = "";
  private buckets = 800;
  private loading: AbortController | null = null;
  private refining: AbortController | null = null;
  private refineTimer: ReturnType<typeof setTimeout> | null = null;
  private refineAskedAt = -Infinity;
  private reloadTimer: ReturnType<typeof setTimeout> | null = null;
  private release: (() => void)[] = [];
  /** Number of segments by the stream, which may know of them before the page. */
  private segments = 0;
  /** Whether the server was asked to merge all places of a key. */
  private merged: boolean | null = null;
  /** Points from the stream while history was loading: they may or may not be in the response. */
  private pending: StreamEvents["points"][] | null = null;

  constructor(
    readonly spec: ChartDataSpec,
    private readonly sync: ChartSync,
    private readonly changed: () => void,
    private readonly loader: SeriesLoader = seriesLoader,
  ) {}

  /** Starts loading and listening; `pixels` is the width of the plot in device pixels. */
  start(pixels: number): void {
    this.buckets = Math.min(2000, Math.max(200, Math.round(pixels / 2)));
    const { stream } = this.sync;
    if (stream) {
      // The stream is opened before the history is requested: points in between are then in both.
      for (const run of this.spec.runs) this.release.push(stream.want(run, this.spec.keys));
      this.release.push(stream.on("points", (data) => this.take(data)));
      this.release.push(stream.on("resync", () => void this.load()));
      this.release.push(stream.on("run", (row) => this.onRun(row)));
    }
    void this.load();
  }

  stop(): void {
    for (const release of this.release.splice(0)) release();
    this.loading?.abort();
    this.refining?.abort();
    if (this.refineTimer !== null) clearTimeout(this.refineTimer);
    if (this.reloadTimer !== null) clearTimeout(this.reloadTimer);
    this.refineTimer = this.reloadTimer = null;
  }

  /** Frees the data of a chart far from the screen. */
  clear(): void {
    this.stop();
    this.lines = [];
    this.state = "empty";
  }

  /** Loads everything again; the old drawing stays until the new data is there. */
  async load(): Promise<void> {
    this.loading?.abort();
    const stop = new AbortController();
    this.loading = stop;
    this.pending = [];
    const { axis } = this.sync.state;
    this.merged = this.mayMerge;
    if (this.state !== "ready") this.state = "loading";
    try {
      const answers = await Promise.all(this.spec.runs.map((run) => this.ask(run, null, stop.signal)));
      if (this.loading !== stop) return;
      const bySteps = this.sync.storedAxis === "step";
      this.lines = answers.flatMap(({ run, answer }) =>
        answer.series.map((series) => new SourceLine(run, series, bySteps)),
      );
      for (const { run, answer } of answers)
        if (run === this.spec.runs[0]) answer.series.forEach((series) => this.sync.clock.learn(series));
      this.missing = this.spec.keys.filter((key) =>
        answers.every(({ answer }) => answer.missing.includes(key)),
      );
      this.axis = axis;
      this.state = "ready";
      this.problem = "";
      for (const points of this.takePending()) this.add(points);
      if (this.sync.state.range) this.refineSoon(this.sync.state.range);
    } catch (error) {
      if (this.loading !== stop || isAbort(error)) return;
      this.takePending();
      this.state = this.lines.length ? "ready" : "failed";
      this.problem = error instanceof ApiError ? error.message : String(error);
    }
    this.changed();
  }

  /** Whether the data was merged differently than it would be now. */
  get isStale(): boolean {
    return this.merged !== null && this.merged !== this.mayMerge;
  }

  /** The server merges places cheaply, but then does not separate the segments of a resumed run. */
  private get mayMerge(): boolean {
    const segments = Math.max(this.segments, ...this.spec.runs.map((run) => this.sync.segmentCount(run)));
    return this.spec.per === "none" && segments <= 1;
  }

  /** A resumed run starts another segment: what is drawn may be superseded now. */
  private onRun(row: RunRow): void {
    if (row.id !== this.spec.runs[0] || row.segments <= Math.max(1, this.segments)) return;
    const isNew = row.segments > Math.max(this.segments, this.sync.segmentCount(row.id));
    this.segments = row.segments;
    if (isNew) void this.load();
  }

  /** Requests finer buckets of a window once it rests; null needs none. */
  refineSoon(range: Range | null): void {
    if (this.refineTimer !== null) clearTimeout(this.refineTimer);
    this.refineTimer = null;
    this.refining?.abort();
    if (range === null) {
      for (const line of this.lines) line.dropDetail();
      return;
    }
    if (this.lines.every((line) => line.whole.exact)) return;
    const now = performance.now();
    const rested = now - this.refineAskedAt > REFINE_AFTER_MS;
    this.refineAskedAt = now;
    // A window that did not just move is final: refine it at once.
    this.refineTimer = setTimeout(() => void this.refine(range), rested ? 0 : REFINE_AFTER_MS);
  }

  private async refine(range: Range): Promise<void> {
    const stop = new AbortController();
    this.refining = stop;
    const margin = (range.to - range.from) * MARGIN;
    try {
      await Promise.all(
        this.spec.runs.map(async (run) => {
          const map = this.sync.mapOf(run);
          const from = map.toStored(range.from - margin);
          const to = map.toStored(range.to + margin);
          if (from === null || to === null) return;
          const part = { from: Math.floor(from), to: Math.ceil(to) };
          const { answer } = await this.ask(run, part, stop.signal);
          const lines = new Map(this.lines.map((line) => [ownerName(line.owner), line]));
          for (const series of answer.series)
            lines.get(ownerName({ run, ...series }))?.takeDetail(series, part);
        }),
      );
      this.changed();
    } catch (error) {
      // The coarse data stays; the next zoom tries again.
      if (!isAbort(error)) this.problem = error instanceof Error ? error.message : String(error);
    }
  }

  private async ask(run: string, part: Range | null, signal: AbortSignal) {
    await this.sync.prepare(run);
    const buckets = part ? Math.round(this.buckets * (1 + 2 * MARGIN)) : this.buckets;
    const merge = this.merged ? true : undefined;
    const question = { run, keys: this.spec.keys, axis: this.sync.storedAxis, merge, buckets, signal };
    const answer = await this.loader.ask(part ? { ...question, from: part.from, to: part.to } : question);
    return { run, answer };
  }

  private take(points: StreamEvents["points"]): void {
    if (!this.spec.runs.includes(points.run)) return;
    this.pending?.push(points);
    if (this.state === "ready" && this.axis === this.sync.state.axis && this.add(points)) this.changed();
  }

  private add({ run, series }: StreamEvents["points"]): boolean {
    let grew = false;
    for (const points of series) {
      if (!this.spec.keys.includes(points.key)) continue;
      if (run === this.spec.runs[0]) this.sync.clock.follow(points.steps, points.times);
      grew = this.takePoints(run, points) || grew;
    }
    return grew;
  }

  private takePending(): StreamEvents["points"][] {
    const points = this.pending ?? [];
    this.pending = null;
    return points;
  }

  private takePoints(run: string, points: PointsOfSeries): boolean {
    const line = this.lines
      .filter(({ owner }) => owner.run === run && owner.key === points.key && !owner.superseded)
      .filter(({ owner }) => this.merged || isPlaceOf(owner, points))
      .reduce<SourceLine | null>(
        (latest, line) => (latest && latest.lastTime >= line.lastTime ? latest : line),
        null,
      );
    if (line) return line.append(points);
    // A new key, rank or device: it comes with its history.
    this.reloadTimer ??= setTimeout(() => {
      this.reloadTimer = null;
      void this.load();
    }, LOAD_AGAIN_AFTER_MS);
    return false;
  }
}

function isPlaceOf(owner: SourceLine["owner"], points: PointsOfSeries): boolean {
  return owner.rank === points.rank && owner.host === points.host && owner.device === points.device;
}

function isAbort(error: unknown): boolean {
  return error instanceof DOMException && error.name === "AbortError";
}
