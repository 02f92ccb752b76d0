// A stage for charts: a loader that answers what a test gives it, and a stream a test speaks through.

import { SeriesLoader, type SeriesQuestion } from "../../src/data/batch";
import type { LiveStream } from "../../src/data/live";
import type { SeriesAnswer } from "../../src/data/series";
import type { PointsOfSeries, Series, StreamEventName } from "../../src/data/types";
import type { Line } from "../../src/chart/series/lines";
import { bucketsOf } from "../synthetic";

export class StagedLoader extends SeriesLoader {
  readonly asked: SeriesQuestion[] = [];
  private readonly waiting: { resolve: (answer: SeriesAnswer) => void; reject: (error: unknown) => void }[] =
    [];

  override ask(question: SeriesQuestion): Promise<SeriesAnswer> {
    this.asked.push(question);
    return new Promise((resolve, reject) => {
      this.waiting.push({ resolve, reject });
      question.signal?.addEventListener("abort", () => reject(new DOMException("aborted", "AbortError")));
    });
  }

  async answer(series: Series[], missing: string[] = [], at = this.waiting.length - 1): Promise<void> {
    this.waiting[at]!.resolve({ series, cursor: "c", missing });
    await settle();
  }

  async refuse(error: unknown): Promise<void> {
    this.waiting[this.waiting.length - 1]!.reject(error);
    await settle();
  }
}

export class StagedStream {
  readonly wanted: string[][] = [];
  private readonly listeners = new Map<StreamEventName, ((data: never) => void)[]>();

  get stream(): LiveStream {
    return this as unknown as LiveStream;
  }

  want(_run: string, keys: string[]): () => void {
    this.wanted.push(keys);
    return () => this.wanted.splice(this.wanted.indexOf(keys), 1);
  }

  on(name: StreamEventName, listener: (data: never) => void): () => void {
    const list = this.listeners.get(name) ?? [];
    this.listeners.set(name, list);
    list.push(listener);
    return () => list.splice(list.indexOf(listener), 1);
  }

  say(name: StreamEventName, data: unknown): void {
    for (const listener of [...(this.listeners.get(name) ?? [])]) listener(data as never);
  }

  points(key: string, steps: number[], values: number[], more: Partial<PointsOfSeries> = {}): void {
    const series: PointsOfSeries = {
      key,
      rank: 0,
      host: "",
      device: "",
      axis: "step",
      steps,
      times: steps,
      values,
      ...more,
    };
    this.say("points", { run: "r", series: [series] });
  }
}

export async function settle(): Promise<void> {
  for (let turn = 0; turn < 20; turn += 1) await Promise.resolve();
}

/** A line as it is drawn, of buckets with one point each. */
export function lineOf(x: number[], value: number[], more: Partial<Line> = {}): Line {
  const series = bucketsOf(more.key ?? "loss", x, value);
  return {
    ...series,
    group: "g",
    label: "loss",
    origin: "loss",
    pinned: false,
    run: "r",
    colour: "#000000",
    dash: [],
    scale: "y",
    plain: false,
    x: series.start,
    value: series.mean,
    smoothed: null,
    whole: x.length,
    ...more,
  };
}
