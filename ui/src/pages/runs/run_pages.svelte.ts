// The list of runs, fetched in pages as rows become visible.

import { api, type Fault, type RunList, type RunRow } from "../../data";
import { asApiError } from "../../app/resource.svelte";
import type { ApiError } from "../../data";

const PAGE_SIZE = 200;
const MIN_BETWEEN_MS = 3000;

export interface RunQuery {
  filter: string;
  sort: string;
  descending: boolean;
  archived: boolean;
}

export class RunPages {
  rows = $state.raw<(RunRow | undefined)[]>([]);
  total = $state<number | null>(null);
  fault = $state.raw<Fault | null>(null);
  problem = $state.raw<ApiError | null>(null);
  configKeys = $state.raw<string[]>([]);
  tags = $state.raw<string[]>([]);
  attention = $state(0);
  #query: RunQuery | null = null;
  #requested = new Set<number>();
  #turn = 0;
  #fetchedAt = -Infinity;
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** Loads another list. The old rows stay until its first page is there. */
  async load(query: RunQuery): Promise<void> {
    this.#query = query;
    this.#requested = new Set([0]);
    this.#turn += 1;
    this.#fetchedAt = performance.now();
    await this.#fetch(0, true);
  }

  /** Loads the same list again soon, but at most once every few seconds. */
  refresh(): void {
    if (this.#timer !== undefined) return;
    const wait = Math.max(0, this.#fetchedAt + MIN_BETWEEN_MS - performance.now());
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      if (this.#query) void this.load(this.#query);
    }, wait);
  }

  /** Cancels a planned refresh. */
  stop(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  /** Fetches missing rows of a range. */
  need(first: number, last: number): void {
    for (let page = Math.floor(first / PAGE_SIZE); page * PAGE_SIZE < last; page++) {
      if (this.#requested.has(page) || page * PAGE_SIZE >= (this.total ?? 0)) continue;
      this.#requested.add(page);
      void this.#fetch(page, false);
    }
  }

  /** Replaces changed rows. New rows come with the next fetch. */
  update(changed: RunRow[]): void {
    const fresh = new Map(changed.map((row) => [row.id, row]));
    this.rows = this.rows.map((row) => (row && fresh.get(row.id)) ?? row);
  }

  has(id: string): boolean {
    return this.rows.some((row) => row?.id === id);
  }

  async #fetch(page: number, isFirst: boolean): Promise<void> {
    const [query, turn] = [this.#query, this.#turn];
    if (!query) return;
    try {
      const list = await api.get<RunList>("runs", { ...query, limit: PAGE_SIZE, offset: page * PAGE_SIZE });
      if (turn === this.#turn) this.#take(list, page, isFirst);
    } catch (error) {
      this.#requested.delete(page);
      if (turn === this.#turn) this.problem = asApiError(error);
    }
  }

  #take(list: RunList, page: number, isFirst: boolean): void {
    this.problem = null;
    this.fault = list.filter_error;
    this.configKeys = list.config_keys;
    this.tags = list.tags;
    this.attention = list.attention;
    if (list.filter_error && this.total !== null) return;
    const rows = isFirst ? new Array<RunRow | undefined>(list.total).fill(undefined) : [...this.rows];
    list.runs.forEach((run, at) => (rows[page * PAGE_SIZE + at] = run));
    [this.rows, this.total] = [rows, list.total];
  }
}
