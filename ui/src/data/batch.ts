// Combines the requests of all charts of a page into one per animation frame.

import { fetchSeriesAnswer, KEYS_PER_REQUEST, type SeriesAnswer, type SeriesOptions } from "./series";
import type { Series } from "./types";

export interface SeriesQuestion extends SeriesOptions {
  run: string;
  keys: string[];
}

type Fetch = typeof fetchSeriesAnswer;

interface Pending {
  question: SeriesQuestion;
  resolve(answer: SeriesAnswer): void;
  reject(error: unknown): void;
}

/** Bucket counts are rounded up to multiples, so that charts of similar width share a response. */
const BUCKET_STEP = 200;
const MAX_BUCKETS_PER_REQUEST = 2000;

export class SeriesLoader {
  private pending: Pending[] = [];
  private scheduled = false;

  constructor(
    private readonly fetch: Fetch = fetchSeriesAnswer,
    private readonly nextFrame: (call: () => void) => void = (call) => void requestAnimationFrame(call),
  ) {}

  /** Resolves with the other requests of this frame; rejects with AbortError at the signal. */
  ask(question: SeriesQuestion): Promise<SeriesAnswer> {
    return new Promise((resolve, reject) => {
      if (question.signal?.aborted) return reject(aborted());
      question.signal?.addEventListener("abort", () => reject(aborted()), { once: true });
      this.pending.push({ question, resolve, reject });
      if (this.scheduled) return;
      this.scheduled = true;
      this.nextFrame(() => this.send());
    });
  }

  private send(): void {
    this.scheduled = false;
    const groups = new Map<string, Pending[]>();
    for (const pending of this.pending) {
      if (pending.question.signal?.aborted) continue;
      const name = groupName(pending.question);
      groups.set(name, [...(groups.get(name) ?? []), pending]);
    }
    this.pending = [];
    for (const group of groups.values()) for (const part of partsOf(group)) void this.sendGroup(part);
  }

  private async sendGroup(group: Pending[]): Promise<void> {
    const first = group[0]!.question;
    const keys = [...new Set(group.flatMap(({ question }) => question.keys))];
    const stop = new AbortController();
    for (const { question } of group) {
      question.signal?.addEventListener("abort", () => {
        if (group.every((pending) => pending.question.signal?.aborted)) stop.abort();
      });
    }
    const { run, keys: _keys, signal: _signal, ...options } = first;
    try {
      const answer = await this.fetch(run, keys, {
        ...options,
        buckets: bucketsFor(group),
        signal: stop.signal,
      });
      for (const { question, resolve } of group) resolve(partOf(answer, question.keys));
    } catch (error) {
      for (const { reject } of group) reject(error);
    }
  }
}

function groupName(question: SeriesQuestion): string {
  const { run, axis, from, to, rank, host, device, merge } = question;
  return JSON.stringify([run, axis, from, to, rank, host, device, merge]);
}

/** Splits questions into requests of limited size, so that the last charts do not delay the first. */
function partsOf(group: Pending[]): Pending[][] {
  const parts: Pending[][] = [];
  let keys = new Set<string>();
  for (const pending of group) {
    const more = new Set([...keys, ...pending.question.keys]);
    if (parts.length === 0 || more.size > KEYS_PER_REQUEST) {
      parts.push([pending]);
      keys = new Set(pending.question.keys);
    } else {
      parts[parts.length - 1]!.push(pending);
      keys = more;
    }
  }
  return parts;
}

function bucketsFor(group: Pending[]): number {
  const most = Math.max(...group.map(({ question }) => question.buckets ?? 800));
  return Math.min(MAX_BUCKETS_PER_REQUEST, Math.ceil(most / BUCKET_STEP) * BUCKET_STEP);
}

function partOf(answer: SeriesAnswer, keys: string[]): SeriesAnswer {
  const own = new Set(keys);
  const series: Series[] = answer.series.filter(({ key }) => own.has(key));
  return { series, cursor: answer.cursor, missing: answer.missing.filter((key) => own.has(key)) };
}

function aborted(): DOMException {
  return new DOMException("The chart no longer needs this.", "AbortError");
}

/** The loader of the page. */
export const seriesLoader = new SeriesLoader();
