// Exports a chart: as a picture, the shown data, or all data.

import { fetchSeries } from "../../data/series";
import type { Series, SeriesAxis } from "../../data/types";
import { fontOf } from "./style";
import type { Line } from "../series/lines";
import { firstAtLeast } from "../series/source";
import type { Range } from "../control/sync";

const BUCKETS_AT_ONCE = 4000;
const MAX_REQUESTS = 500;

/** The buckets in the window as CSV. */
export function csvOfShown(lines: readonly Line[], window: Range, axis: string): string {
  const rows = [
    ["line", "key", axis, "time", "value", "smoothed", "min", "max", "count", "nonfinite"].join(","),
  ];
  for (const line of lines) {
    const to = firstAtLeast(line.x, window.to);
    const end = line.x[to] === window.to ? to + 1 : to;
    for (let at = firstAtLeast(line.x, window.from); at < end; at += 1) {
      const smoothed = line.smoothed ? cell(line.smoothed[at]!) : "";
      const numbers = [line.x, line.time, line.value].map((column) => cell(column[at]!));
      const rest = [line.min, line.max, line.count, line.nonfinite].map((column) => cell(column[at]!));
      rows.push([quoted(line.label), quoted(line.key), ...numbers, smoothed, ...rest].join(","));
    }
  }
  return rows.join("\n") + "\n";
}

/** All points of these keys as CSV, requested in pieces until no bucket has more than one point. */
export async function csvOfEverything(
  run: string,
  keys: readonly string[],
  axis: SeriesAxis,
  signal?: AbortSignal,
): Promise<string> {
  const rows = ["key,rank,host,device,segment,superseded,step,time,value".replace("step", axis)];
  for (const key of keys) {
    for (const series of await exactSeries(run, key, axis, signal)) {
      const { rank, host, device, segment, superseded } = series;
      const place = [quoted(key), rank ?? "", quoted(host), quoted(device), quoted(segment), superseded];
      series.start.forEach((start, at) =>
        rows.push([...place, cell(start), cell(series.time[at]!), cell(series.last[at]!)].join(",")),
      );
    }
  }
  return rows.join("\n") + "\n";
}

async function exactSeries(
  run: string,
  key: string,
  axis: SeriesAxis,
  signal?: AbortSignal,
): Promise<Series[]> {
  const whole = await fetchSeries(run, [key], { axis, buckets: BUCKETS_AT_ONCE, signal });
  if (whole.every((series) => series.exact)) return whole;
  const pieces = new Set<number>();
  for (const { start, width } of whole) {
    for (const from of start) {
      for (let piece = Math.floor(from / BUCKETS_AT_ONCE); piece * BUCKETS_AT_ONCE < from + width; piece += 1)
        pieces.add(piece);
    }
  }
  const starts = [...pieces].sort((a, b) => a - b);
  if (starts.length > MAX_REQUESTS) {
    throw new Error(
      `${key} needs ${starts.length} requests, more than ${MAX_REQUESTS}. Use stepscope export instead.`,
    );
  }
  const parts: Series[] = [];
  for (const start of starts) {
    const from = start * BUCKETS_AT_ONCE;
    parts.push(
      ...(await fetchSeries(run, [key], {
        axis,
        from,
        to: from + BUCKETS_AT_ONCE - 1,
        buckets: BUCKETS_AT_ONCE,
        signal,
      })),
    );
  }
  return parts;
}

function cell(value: number): string {
  return Number.isNaN(value) ? "NaN" : String(value);
}

/** A text as a CSV cell, escaped if a spreadsheet would read it as a formula. */
function quoted(text: string): string {
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** Downloads a text as a file. */
export function saveText(text: string, name: string, type = "text/csv"): void {
  save(new Blob([text], { type }), name);
}

/** Copies the picture, or downloads it where the clipboard does not accept pictures; returns which. */
export async function copyPicture(
  canvas: HTMLCanvasElement,
  title: string,
  colours: { surface: string; text: string; font: string },
): Promise<"copied" | "saved"> {
  const picture = withTitle(canvas, title, colours);
  const blob = await new Promise<Blob>((resolve, reject) =>
    picture.toBlob(
      (made) =>
        made ? resolve(made) : reject(new Error("The browser could not make a picture of this chart.")),
      "image/png",
    ),
  );
  try {
    await navigator.clipboard.write([new ClipboardItem({ "image/png": blob })]);
    return "copied";
  } catch {
    save(blob, `${title}.png`);
    return "saved";
  }
}

function withTitle(
  canvas: HTMLCanvasElement,
  title: string,
  { surface, text, font }: { surface: string; text: string; font: string },
): HTMLCanvasElement {
  const ratio = devicePixelRatio;
  const picture = document.createElement("canvas");
  picture.width = canvas.width;
  picture.height = canvas.height + 28 * ratio;
  const context = picture.getContext("2d")!;
  context.fillStyle = surface;
  context.fillRect(0, 0, picture.width, picture.height);
  context.fillStyle = text;
  context.font = fontOf("title", font, ratio);
  context.fillText(title, 12 * ratio, 19 * ratio);
  context.drawImage(canvas, 0, 28 * ratio);
  return picture;
}

function save(blob: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name.replaceAll(/[^\w.-]+/g, "_");
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
