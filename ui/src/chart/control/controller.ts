// Runs one chart, independent of the component that contains it: data, drawing, gestures, crosshair.

import { valuesAt } from "../series/baseline";
import { compose, type ChartSettings } from "../drawing/compose";
import { toX, windowOf, xAt, yAt } from "../drawing/plot_frame";
import { inNextFrame, notInNextFrame } from "../drawing/animation_frames";
import { Gestures, type GestureTarget } from "./gestures";
import { buildLines, MAX_PLACES, type Line } from "../series/lines";
import { ChartData } from "../series/chart_data";
import { bucketAt, readingsAt, type Reading } from "../series/nearest";
import { Plot, type Picture, type PlotStyle } from "../drawing/plot";
import { withRest, type Layer } from "../series/stack";
import type { ChartListener } from "./chart_listener";
import type { ChartSync, Range } from "./sync";
import { onThemeChange } from "../drawing/theme";

/** Approximate width of the y axis in CSS pixels, before the first drawing. */
const AXIS_WIDTH = 68;

export class ChartController implements GestureTarget {
  readonly data: ChartData;
  private plot: Plot | null = null;
  private gestures: Gestures | null = null;
  private lines: Line[] = [];
  private layers: Layer[] | null = null;
  private picture: Picture | null = null;
  private alone: Range | null = null;
  private yFixed: Range | null = null;
  private pointer: { x: number; y: number } | null = null;
  private pinned = false;
  private width = 0;
  private visible = false;
  private dirty = true;
  private readonly release: (() => void)[] = [];
  private lastAxis: string;
  private lastRange: Range | null;
  private readonly redraw = (): void => this.draw();

  constructor(
    private readonly host: HTMLElement,
    private settings: ChartSettings,
    private readonly sync: ChartSync,
    private readonly listener: ChartListener,
  ) {
    const runs = settings.runs?.map((run) => run.id) ?? [settings.run];
    const ways = [settings.per, ...Object.values(settings.perKey ?? {})];
    const per = settings.kind === "stack" ? "none" : (ways.find((way) => way !== "none") ?? "none");
    this.data = new ChartData({ runs, keys: settings.keys, per }, sync, () => this.changed());
    this.lastAxis = sync.state.axis;
    this.lastRange = sync.state.range;
    this.release.push(sync.subscribe(() => this.synced()));
    this.release.push(sync.onCrosshair((x, source) => this.crosshairMoved(x, source)));
    this.release.push(onThemeChange(() => this.restyle()));
  }

  /** The chart is near the screen: loads missing data and draws. */
  show(width: number): void {
    this.width = width;
    this.visible = true;
    if (this.data.state === "empty" && width > 0) this.data.start(width * devicePixelRatio);
    this.changed();
  }

  hide(): void {
    this.visible = false;
  }

  /** The chart is far from the screen: frees canvas and data. */
  free(): void {
    this.visible = false;
    this.dropPlot();
    this.data.clear();
    this.lines = [];
    this.dirty = true;
  }

  destroy(): void {
    this.free();
    notInNextFrame(this.redraw);
    for (const release of this.release.splice(0)) release();
    this.sync.reach(this, null);
  }

  configure(settings: ChartSettings): void {
    this.settings = settings;
    this.changed();
  }

  resized(width: number): void {
    if (width === this.width) return;
    this.width = width;
    if (this.visible && this.data.state === "empty" && width > 0) this.data.start(width * devicePixelRatio);
    this.changed();
  }

  get canvas(): HTMLCanvasElement | null {
    return this.plot?.canvas ?? null;
  }

  svg(title: string): string | null {
    return this.plot?.svg(title) ?? null;
  }

  get shownLines(): Line[] {
    return this.lines.filter((line) => !this.settings.hidden.has(line.group));
  }

  get window(): Range | null {
    return this.alone ?? this.sync.window;
  }

  /** The value at the pointer, or the one in the middle; null before the first drawing. */
  get pointedValue(): number | null {
    if (!this.plot) return null;
    const { height, ratio } = this.plot.frame;
    return this.yAtPlace(this.pointer?.y ?? height / ratio / 2);
  }

  // Actions of gestures and keys.

  hover(place: { x: number; y: number } | null): void {
    if (this.pinned) return;
    this.pointer = place;
    this.sync.setCrosshair(place && this.plot ? this.xAtPlace(place.x) : null, this);
  }

  select(area: { axis: "x" | "y"; from: number; to: number } | null): void {
    if (!area || !this.plot) return this.listener.select(null);
    this.releasePointer();
    const { left, top, width, height, ratio } = this.plot.frame;
    const plot = { left: left / ratio, top: top / ratio, width: width / ratio, height: height / ratio };
    const from = Math.max(area.from, 0);
    const size = Math.min(area.to, area.axis === "x" ? plot.width : plot.height) - from;
    if (area.axis === "x") this.listener.select({ ...plot, left: plot.left + from, width: size });
    else this.listener.select({ ...plot, top: plot.top + from, height: size });
  }

  zoom({ axis, from, to, alone }: { axis: "x" | "y"; from: number; to: number; alone: boolean }): void {
    if (!this.plot) return;
    if (axis === "y") {
      this.yFixed = { from: this.yAtPlace(to), to: this.yAtPlace(from) };
      this.changed();
    } else this.zoomTo({ from: this.xAtPlace(from), to: this.xAtPlace(to) }, alone);
  }

  zoomAround(factor: number, place: number): void {
    if (!this.plot) return;
    const x = this.xAtPlace(place);
    if (!this.alone) this.sync.zoomBy(factor, x);
    else
      this.zoomTo({ from: x - (x - this.alone.from) * factor, to: x + (this.alone.to - x) * factor }, true);
  }

  pan(axis: "x" | "y", pixels: number): void {
    if (!this.plot || !this.picture || pixels === 0) return;
    const { frame } = this.plot;
    if (axis === "y") {
      const { min, max } = this.picture.y;
      const share = (pixels * frame.ratio) / frame.height;
      const by = max * share - min * share;
      this.yFixed = { from: min + by, to: max + by };
      this.changed();
      return;
    }
    // Not the drawn window: a pinch has just changed it, and the drawing follows in the next frame.
    const { from, to } = this.window ?? windowOf(frame);
    const by = ((to - from) * -pixels * frame.ratio) / frame.width;
    this.zoomTo({ from: from + by, to: to + by }, this.alone !== null);
  }

  reset(): void {
    this.yFixed = null;
    this.unpin();
    if (this.alone) {
      this.alone = null;
      this.data.refineSoon(this.sync.state.range);
      this.changed();
    } else if (this.sync.state.range) this.sync.reset();
    else this.changed();
  }

  pin(place: { x: number; y: number }): void {
    if (!this.plot) return;
    this.pinned = false;
    this.hover(place);
    this.pinned = true;
  }

  /** Pins the position of the crosshair, for people without a pointer. */
  pinHere(): void {
    if (!this.plot || this.sync.crosshair === null) return;
    this.pinned = true;
    this.crosshairMoved(this.sync.crosshair, this);
  }

  /** Releases a pinned position. */
  unpin(): void {
    this.releasePointer();
  }

  /** Forgets the pointer and the pinned position, after the window has moved. */
  private releasePointer(): void {
    this.pinned = false;
    this.pointer = null;
    this.sync.setCrosshair(null, this);
  }

  get isPinned(): boolean {
    return this.pinned;
  }

  /** Moves the crosshair by a number of buckets of the longest visible line. */
  stepCrosshair(buckets: number): void {
    const window = this.window;
    const line = this.shownLines.reduce<Line | null>(
      (best, line) => (best && best.x.length >= line.x.length ? best : line),
      null,
    );
    if (!this.plot || !line || line.x.length === 0 || !window) return;
    const { frame } = this.plot;
    const from = this.sync.crosshair ?? (buckets > 0 ? window.from : window.to);
    const at = bucketAt(frame, line, from);
    const next =
      at < 0 ? (buckets > 0 ? 0 : line.x.length - 1) : Math.min(line.x.length - 1, Math.max(0, at + buckets));
    this.pointer = null;
    this.sync.setCrosshair(Math.min(window.to, Math.max(window.from, line.x[next]!)), this);
  }

  private zoomTo(range: Range, alone: boolean): void {
    if (range.to <= range.from) return;
    this.releasePointer();
    if (!alone) {
      this.alone = null;
      this.sync.zoom(range);
      return;
    }
    this.alone = range;
    this.data.refineSoon(range);
    this.changed();
  }

  private xAtPlace(place: number): number {
    const { frame } = this.plot!;
    return xAt(frame, frame.left + place * frame.ratio);
  }

  private yAtPlace(place: number): number {
    const { frame } = this.plot!;
    return yAt(frame, frame.top + place * frame.ratio);
  }

  // Drawing.

  private changed(): void {
    this.dirty = true;
    if (this.visible) inNextFrame(this.redraw);
  }

  private synced(): void {
    const { axis, range } = this.sync.state;
    if (axis !== this.lastAxis) {
      this.lastAxis = axis;
      this.alone = null;
      this.releasePointer();
      if (this.data.state !== "empty") void this.data.load();
    } else if (this.data.isStale) void this.data.load();
    if (range !== this.lastRange) {
      this.lastRange = range;
      if (!this.alone) this.data.refineSoon(range);
    }
    this.changed();
  }

  private restyle(): void {
    this.dropPlot();
    this.changed();
  }

  private draw(): void {
    if (!this.visible || !this.dirty || this.width <= 0) return;
    // Another axis was chosen and its data is loading: the old drawing stays.
    if (this.data.lines.length > 0 && this.data.axis !== this.sync.state.axis) return;
    this.dirty = false;
    const lines = buildLines(this.data.lines, this.settings, this.sync);
    this.lines = this.settings.kind === "stack" ? withRest(lines) : lines;
    this.reportReach();
    const window = this.window;
    const range = window ? this.paint(window) : null;
    this.listener.drawn({
      lines: this.lines,
      layers: this.layers,
      window,
      state: this.data.state,
      problem: this.data.problem,
      missing: this.data.missing,
      above: range?.above ?? 0,
      below: range?.below ?? 0,
      alone: this.alone !== null,
      yZoomed: this.yFixed !== null,
      many: this.settings.per !== "none" && this.placesOfFirstKey > MAX_PLACES,
    });
  }

  private get placesOfFirstKey(): number {
    return this.data.lines.filter(({ owner }) => owner.key === this.settings.keys[0]).length;
  }

  private paint(window: Range): { above: number; below: number } {
    const group = this.picture?.emphasis.group ?? null;
    const { picture, style, above, below } = compose(this.settings, this.sync, this.shownLines, {
      window,
      width: this.plot ? this.plot.frame.width / this.plot.frame.ratio : this.width - AXIS_WIDTH,
      yFixed: this.yFixed,
      group,
    });
    this.picture = picture;
    this.layers = picture.layers;
    this.plotFor(style).show(picture);
    this.crosshairMoved(this.sync.crosshair, null);
    return { above, below };
  }

  private plotFor(style: PlotStyle): Plot {
    if (this.plot && JSON.stringify(this.plot.style) !== JSON.stringify(style)) this.dropPlot();
    if (!this.plot) {
      this.plot = new Plot(this.host, style, this.width, this.settings.height, this.listener.framed);
      this.gestures = new Gestures(this.host, this.plot.overlay, this);
    } else this.plot.resize(this.width, this.settings.height);
    return this.plot;
  }

  private dropPlot(): void {
    this.gestures?.destroy();
    this.plot?.destroy();
    this.gestures = this.plot = null;
  }

  private reportReach(): void {
    let from = Infinity;
    let to = -Infinity;
    for (const { x } of this.lines) {
      if (x.length === 0) continue;
      from = Math.min(from, x[0]!);
      to = Math.max(to, x[x.length - 1]!);
    }
    if (from <= to) this.sync.reach(this, { from, to });
  }

  private crosshairMoved(x: number | null, source: unknown): void {
    if (!this.visible || !this.plot) return;
    const { frame } = this.plot;
    const pixel = x === null ? NaN : toX(frame, x);
    const inside = pixel >= frame.left && pixel <= frame.left + frame.width;
    this.listener.crosshair(inside ? pixel / frame.ratio : null);
    if (source === null) return;
    const mine = source === this && inside && x !== null;
    if (!mine) {
      if (!this.pinned) {
        this.listener.pointing(null);
        this.plot.emphasise(null);
      }
      return;
    }
    const pointerY = this.pointer ? frame.top + this.pointer.y * frame.ratio : null;
    const readings = readingsAt(frame, this.shownLines, x, pointerY, this.layers);
    const nearest = readings.reduce<Reading | null>(
      (best, reading) => (best && best.distance <= reading.distance ? best : reading),
      null,
    );
    const bases = valuesAt(this.lines, this.sync);
    for (const reading of readings) reading.base = bases.get(reading.group) ?? null;
    const several = new Set(readings.map((reading) => reading.group)).size > 1;
    this.plot.emphasise(several && pointerY !== null ? (nearest?.group ?? null) : null);
    this.listener.pointing({
      x,
      left: pixel / frame.ratio,
      top: (pointerY ?? nearest?.y ?? frame.top) / frame.ratio,
      readings,
      nearest: nearest?.group ?? null,
      spot: this.sync.spotAt(nearest?.x ?? x, nearest ? this.runOf(nearest.group) : this.settings.run),
      pinned: this.pinned,
    });
  }

  private runOf(group: string): string {
    return this.lines.find((line) => line.group === group)?.run ?? this.settings.run;
  }
}
