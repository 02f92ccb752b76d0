// Exports a chart as SVG: axes, ticks, lines, bands, labels, title and legend in the colours of the theme.

import { toX, toY, type Frame, type Projection } from "./plot_frame";
import { paintLines, paintMarks } from "./paint";
import { paintLabels } from "./paint_labels";
import type { Picture } from "./plot";
import { paintStack } from "../series/stack";
import { escaped, SvgCanvas } from "./svg_canvas";
import { fontOf, LEGEND_WIDTH, MARK_ALPHA, MARK_DASH } from "./style";
import type { Theme } from "./theme";

/** The labels of an axis, as the page shows them. */
export interface Tick {
  at: number;
  text: string;
}

export interface Drawing {
  title: string;
  width: number;
  height: number;
  frame: Frame;
  picture: Picture;
  ticks: { x: Tick[]; y: Tick[]; y2: Tick[] };
  /** Whether names are at the ends of the lines. */
  labelled: boolean;
}

const HEAD = 28;
const ROW = 18;

export function svgOf(drawing: Drawing, colours: Theme): string {
  const { width, height, picture, title } = drawing;
  const frame = inCssPixels(drawing.frame);
  const canvas = new SvgCanvas();
  const rows = legendOf(drawing);
  const below = rows.length * ROW + (rows.length ? 8 : 0);
  canvas.fillStyle = colours.text;
  canvas.font = fontOf("title", colours.font);
  canvas.fillText(title, 12, 19 - HEAD);
  paintAxes(canvas, frame, drawing, colours);
  if (picture.layers) paintStack(canvas, frame, picture.layers, null);
  else paintLines(canvas, frame, picture.lines, { ...picture.emphasis, group: null });
  paintMarks(canvas, frame, picture.lines, colours);
  if (drawing.labelled) paintLabels(canvas, frame, picture.lines, colours);
  rows.forEach((row, at) => paintRow(canvas, row, frame.left, height + at * ROW + ROW / 2, colours));
  const size = `width="${width}" height="${height + HEAD + below}"`;
  const box = `viewBox="0 ${-HEAD} ${width} ${height + HEAD + below}"`;
  const ground = `<rect y="${-HEAD}" width="100%" height="100%" fill="${escaped(colours.surface)}"/>`;
  return `<svg xmlns="http://www.w3.org/2000/svg" ${size} ${box}>${ground}${canvas.content}</svg>\n`;
}

function inCssPixels(frame: Frame): Frame {
  const { left, top, width, height, ratio } = frame;
  return {
    ...frame,
    left: left / ratio,
    top: top / ratio,
    width: width / ratio,
    height: height / ratio,
    ratio: 1,
  };
}

function paintAxes(canvas: SvgCanvas, frame: Frame, { ticks, picture }: Drawing, colours: Theme): void {
  const { left, top, width, height } = frame;
  const [right, bottom] = [left + width, top + height];
  canvas.save();
  canvas.font = fontOf("axis", colours.font);
  canvas.fillStyle = colours.axis;
  canvas.textBaseline = "middle";
  for (const { at, text } of within(ticks.y, frame.y)) {
    const y = toY(frame, at);
    across(canvas, [left, y, right, y], colours.grid);
    canvas.textAlign = "right";
    canvas.fillText(text, left - 4, y);
  }
  canvas.textAlign = "left";
  for (const { at, text } of frame.y2 ? within(ticks.y2, frame.y2) : [])
    canvas.fillText(text, right + 4, toY(frame, at, "y2"));
  canvas.textAlign = "center";
  for (const { at, text } of within(ticks.x, frame.x)) {
    const x = toX(frame, at);
    across(canvas, [x, top, x, bottom], colours.grid);
    text.split("\n").forEach((row, line) => canvas.fillText(row, x, bottom + 11 + 13 * line));
  }
  canvas.setLineDash(MARK_DASH);
  for (const mark of picture.marks) {
    const x = toX(frame, mark.x);
    canvas.globalAlpha = MARK_ALPHA[mark.tone];
    across(canvas, [x, top, x, bottom], colours[mark.tone]);
  }
  canvas.restore();
}

function within(ticks: Tick[], { min, max }: Projection): Tick[] {
  return ticks.filter(({ at, text }) => text && at >= min && at <= max);
}

function across(canvas: SvgCanvas, ends: [number, number, number, number], colour: string): void {
  canvas.strokeStyle = colour;
  canvas.lineWidth = 1;
  canvas.beginPath();
  canvas.moveTo(ends[0], ends[1]);
  canvas.lineTo(ends[2], ends[3]);
  canvas.stroke();
}

interface Entry {
  label: string;
  colour: string;
  dash: number[];
  left: number;
}

/** The names of several lines in rows; their width is estimated from an average letter. */
function legendOf({ picture, width, frame }: Drawing): Entry[][] {
  const names = new Map(picture.lines.filter((line) => !line.superseded).map((line) => [line.group, line]));
  if (names.size < 2) return [];
  const rows: Entry[][] = [[]];
  const room = width - frame.left / frame.ratio;
  let left = 0;
  for (const { label, colour, dash } of names.values()) {
    const wide = 34 + label.length * 6.5;
    if (left > 0 && left + wide > room) {
      rows.push([]);
      left = 0;
    }
    rows[rows.length - 1]!.push({ label, colour, dash, left });
    left += wide;
  }
  return rows;
}

function paintRow(canvas: SvgCanvas, row: Entry[], left: number, y: number, colours: Theme): void {
  canvas.save();
  canvas.font = fontOf("legend", colours.font);
  canvas.textAlign = "left";
  canvas.textBaseline = "middle";
  for (const entry of row) {
    const x = left + entry.left;
    canvas.setLineDash(entry.dash);
    canvas.lineWidth = LEGEND_WIDTH;
    canvas.strokeStyle = entry.colour;
    canvas.beginPath();
    canvas.moveTo(x, y);
    canvas.lineTo(x + 16, y);
    canvas.stroke();
    canvas.fillStyle = colours.text;
    canvas.fillText(entry.label, x + 20, y);
  }
  canvas.restore();
}
