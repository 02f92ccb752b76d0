// The canvas of a chart: uPlot draws axes, ticks and grid; the functions in paint.ts draw the lines.

import uPlot from "uplot";
import { clockTicksOf, logTicksOf, tickDistances, ticksOf, type Unit } from "../../format";
import type { AxisName } from "../../data/types";
import type { Frame } from "./plot_frame";
import type { Line } from "../series/lines";
import { paintLines, paintMarks, type Emphasis } from "./paint";
import { labelRoom, paintLabels } from "./paint_labels";
import { logTicks } from "./scale_ticks";
import { paintStack, type Layer } from "../series/stack";
import { svgOf, type Drawing } from "./svg";
import type { Range } from "../control/sync";
import { AXIS_LEFT, AXIS_RIGHT, fontOf, MARK_ALPHA, MARK_DASH } from "./style";
import { theme } from "./theme";

/** Properties whose change needs a new layout of the axes. */
export interface PlotStyle {
  axis: AxisName;
  unit: Unit;
  /** Null without a second axis. */
  secondUnit: Unit | null;
  logX: boolean;
  logY: boolean;
  compact: boolean;
}

export interface Mark {
  x: number;
  tone: "bad" | "warn" | "muted" | "text";
}

export interface Picture {
  lines: Line[];
  layers: Layer[] | null;
  window: Range;
  y: { min: number; max: number };
  y2: { min: number; max: number } | null;
  marks: Mark[];
  emphasis: Emphasis;
  labels: boolean;
}

/** Beyond these uPlot finds no ticks and omits the axis: such an axis is scaled by a power of ten. */
const [TINY, HUGE] = [1e-9, 1e12];
const WHOLE_STEPS = Array.from({ length: 16 }, (_, power) =>
  [1, 2, 5].map((digit) => digit * 10 ** power),
).flat();

/** uPlot's own search for these does not end if a range starts between two powers of ten. */
const logSplits: uPlot.Axis.Splits = (_self, _axis, low, high) => logTicks(low, high);

export class Plot {
  private readonly chart: uPlot;
  private picture: Picture | null = null;
  private room = 0;
  /** The factor of uPlot's numbers along an axis. */
  private readonly factors = { y: 1, y2: 1 };
  private readonly ticks: Drawing["ticks"] = { x: [], y: [], y2: [] };

  constructor(
    host: HTMLElement,
    readonly style: PlotStyle,
    width: number,
    height: number,
    private readonly painted: (frame: Frame) => void,
  ) {
    this.chart = new uPlot(
      this.options(width, height),
      [
        [0, 1],
        [null, null],
        [null, null],
      ] as unknown as uPlot.AlignedData,
      host,
    );
  }

  get overlay(): HTMLElement {
    return this.chart.over;
  }

  get canvas(): HTMLCanvasElement {
    return this.chart.ctx.canvas;
  }

  /** Position and scales of the last drawing. */
  get frame(): Frame {
    const { left, top, width, height } = this.chart.bbox;
    const { x, y, y2 } = this.chart.scales;
    const { logX, logY } = this.style;
    const projection = (scale: uPlot.Scale | undefined, log: boolean, factor = 1) => ({
      min: (scale?.min ?? 0) * factor,
      max: (scale?.max ?? 1) * factor,
      log,
    });
    return {
      left,
      top,
      width,
      height,
      ratio: uPlot.pxRatio,
      x: projection(x, logX),
      y: projection(y, logY, this.factors.y),
      y2: this.style.secondUnit === null ? null : projection(y2, false, this.factors.y2),
    };
  }

  /** The drawing as SVG. */
  svg(title: string): string | null {
    const { chart, picture, frame, ticks } = this;
    const { width, height } = chart;
    if (!picture) return null;
    return svgOf({ title, width, height, frame, picture, ticks, labelled: this.room > 0 }, theme());
  }

  show(picture: Picture): void {
    this.picture = picture;
    const room = picture.labels ? labelRoom(this.chart.ctx, picture.lines, this.chart.width, theme()) : 0;
    const roomChanged = room !== this.room;
    this.room = room;
    this.chart.batch(() => {
      this.chart.setScale("x", { min: picture.window.from, max: picture.window.to });
      this.reach("y", picture.y, this.style.unit);
      if (picture.y2 && this.style.secondUnit !== null) this.reach("y2", picture.y2, this.style.secondUnit);
    });
    this.chart.redraw(false, roomChanged);
  }

  private reach(axis: "y" | "y2", { min, max }: { min: number; max: number }, unit: Unit): void {
    const greatest = Math.max(Math.abs(min), Math.abs(max));
    const isOrdinary = greatest === 0 || (greatest >= TINY && greatest < HUGE) || tickDistances(unit);
    const factor = isOrdinary ? 1 : Number(`1e${Math.floor(Math.log10(greatest))}`);
    this.factors[axis] = factor;
    this.chart.setScale(axis, { min: min / factor, max: max / factor });
  }

  /** Draws again with another line emphasised. */
  emphasise(group: string | null): void {
    if (!this.picture || this.picture.emphasis.group === group) return;
    this.picture.emphasis.group = group;
    this.chart.redraw(false, false);
  }

  resize(width: number, height: number): void {
    if (width !== this.chart.width || height !== this.chart.height) this.chart.setSize({ width, height });
  }

  destroy(): void {
    this.chart.destroy();
  }

  private options(width: number, height: number): uPlot.Options {
    const { secondUnit, compact, logX, logY } = this.style;
    const nothing: uPlot.Series = { paths: () => null, points: { show: false } };
    const scale = (log: boolean): uPlot.Scale => ({
      time: false,
      auto: false,
      distr: log ? 3 : 1,
      range: (_self, min, max) => [min, max],
    });
    return {
      width,
      height,
      padding: [8, (self) => this.room || (secondUnit === null ? this.roomOfLastTick(self) : 0), 0, 0],
      cursor: { show: false },
      legend: { show: false },
      select: { show: false, left: 0, top: 0, width: 0, height: 0 },
      scales: { x: scale(logX), y: scale(logY), y2: scale(false) },
      series: [{}, { ...nothing, scale: "y" }, { ...nothing, scale: "y2" }],
      axes: [
        this.xAxis(compact),
        this.yAxis(this.style.unit, logY, { scale: "y", side: 3 }),
        ...(secondUnit === null
          ? []
          : [this.yAxis(secondUnit, false, { scale: "y2", side: 1, grid: { show: false } })]),
      ],
      hooks: { drawAxes: [() => this.paintBehind()], draw: [() => this.paint()] },
    };
  }

  private axisLook(): uPlot.Axis {
    return {
      stroke: () => theme().axis,
      font: fontOf("axis", theme().font),
      gap: 4,
      ticks: { show: false },
      grid: { stroke: () => theme().grid, width: 1 },
    };
  }

  private xAxis(compact: boolean): uPlot.Axis {
    const { axis, logX } = this.style;
    const clock = axis === "wall";
    const seconds = axis === "active" || axis === "process";
    const counted = axis === "step" || axis === "samples" || axis === "tokens";
    return {
      ...this.axisLook(),
      size: clock ? 34 : 22,
      space: compact ? 70 : 90,
      lineGap: 1.2,
      splits: logX ? logSplits : undefined,
      incrs: clock
        ? tickDistances("clock")
        : seconds
          ? tickDistances("seconds")
          : counted
            ? WHOLE_STEPS
            : undefined,
      values: (_self, splits) => {
        if (clock) return this.noted("x", splits, clockTicksOf(splits));
        const texts = logX ? logTicksOf(splits, "") : ticksOf(splits, seconds ? "seconds" : "");
        return this.noted("x", splits, texts);
      },
      grid: { ...this.axisLook().grid, show: !compact },
    };
  }

  private yAxis(unit: Unit, log: boolean, more: uPlot.Axis): uPlot.Axis {
    const look = this.axisLook();
    const axis = more.scale === "y2" ? "y2" : "y";
    return {
      ...look,
      size: (self, values) =>
        Math.max(
          AXIS_LEFT,
          12 + Math.max(0, ...(values ?? []).map((value) => this.textWidth(self, String(value ?? "")))),
        ),
      space: this.style.compact ? 26 : 34,
      incrs: tickDistances(unit),
      splits: log
        ? (_self, _axis, low, high) => {
            const factor = this.factors[axis];
            return logTicks(low * factor, high * factor).map((at) => at / factor);
          }
        : undefined,
      values: (_self, splits) => {
        const places = splits.map((at) => at * this.factors[axis]);
        return this.noted(axis, places, log ? logTicksOf(places, unit) : ticksOf(places, unit));
      },
      // The second axis has few lines: its labels have the colour of the first one.
      stroke: () => this.picture?.lines.find(({ scale }) => scale === "y2" && scale === axis)?.colour ?? theme().axis,
      ...more,
      grid: { ...look.grid, ...more.grid },
    };
  }

  /** Keeps the labels of an axis for a later SVG export. */
  private noted(
    axis: keyof Drawing["ticks"],
    splits: readonly number[],
    texts: (string | null)[],
  ): (string | null)[] {
    this.ticks[axis] = splits.map((at, index) => ({ at, text: texts[index] ?? "" }));
    return texts;
  }

  /** The room the last x label needs right of the plot: labels are centred below their ticks. */
  private roomOfLastTick(self: uPlot): number {
    const last = this.ticks.x.findLast(({ text }) => text);
    const { min, max } = self.scales.x!;
    if (!last || min == null || max == null) return AXIS_RIGHT;
    const inside = ((max - last.at) / (max - min)) * self.width;
    return Math.max(AXIS_RIGHT, Math.ceil(this.textWidth(self, last.text) / 2 - inside));
  }

  private textWidth(self: uPlot, text: string): number {
    self.ctx.save();
    self.ctx.font = fontOf("axis", theme().font);
    const { width } = self.ctx.measureText(text);
    self.ctx.restore();
    return width;
  }

  private paintBehind(): void {
    const { ctx } = this.chart;
    const { left, top, width, height, x } = this.frame;
    const colours = theme();
    ctx.save();
    ctx.lineWidth = uPlot.pxRatio;
    ctx.setLineDash(MARK_DASH.map((length) => length * uPlot.pxRatio));
    for (const mark of this.picture?.marks ?? []) {
      if (mark.x < x.min || mark.x > x.max) continue;
      const at = Math.round(this.chart.valToPos(mark.x, "x", true)) + 0.5;
      if (at < left || at > left + width) continue;
      ctx.strokeStyle = colours[mark.tone];
      ctx.globalAlpha = MARK_ALPHA[mark.tone];
      ctx.beginPath();
      ctx.moveTo(at, top);
      ctx.lineTo(at, top + height);
      ctx.stroke();
    }
    ctx.restore();
  }

  private paint(): void {
    const picture = this.picture;
    if (!picture) return;
    const { ctx } = this.chart;
    const frame = this.frame;
    ctx.save();
    if (picture.layers) paintStack(ctx, frame, picture.layers, picture.emphasis.group);
    else paintLines(ctx, frame, picture.lines, picture.emphasis);
    paintMarks(ctx, frame, picture.lines, theme());
    if (this.room) paintLabels(ctx, frame, picture.lines, theme());
    ctx.restore();
    this.painted(frame);
  }
}
