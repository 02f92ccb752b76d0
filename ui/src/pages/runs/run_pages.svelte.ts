// The list of runs, fetched in portions as rows come into view.

import { api, type FilterFault, type RunList, type RunRow } from "../../data";
import { asApiError } from "../../app/resource.svelte";
import type { ApiError } from "../../data";

const PORTION = 200;
const MIN_BETWEEN_MS = 3000;

export interface Wanted {
  filter: string;
  sort: string;
  descending: boolean;
  archived: boolean;
}

export class RunPages {
  rows = $state.raw<(RunRow | undefined)[]>([]);
  total = $state<number | null>(null);
  fault = $state.raw<FilterFault | null>(null);
  problem = $state.raw<ApiError | null>(null);
  configKeys = $state.raw<string[]>([]);
  tags = $state.raw<string[]>([]);
  attention = $state(0);
  #wanted: Wanted | null = null;
  #asked = new Set<number>();
  #turn = 0;
  #fetchedAt = -Infinity;
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** Asks for another list. The rows shown stay until its first portion is there. */
  async want(wanted: Wanted): Promise<void> {
    this.#wanted = wanted;
    this.#asked = new Set([0]);
    this.#turn += 1;
    this.#fetchedAt = performance.now();
    await this.#fetch(0, true);
  }

  /** Asks for the same list again soon, but not more often than every few seconds. */
  refresh(): void {
    if (this.#timer !== undefined) return;
    const wait = Math.max(0, this.#fetchedAt + MIN_BETWEEN_MS - performance.now());
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      if (this.#wanted) void this.want(this.#wanted);
    }, wait);
  }

  /** Forgets what was to be asked. */
  stop(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  /** Fetches what is missing between two rows. */
  need(first: number, last: number): void {
    for (let portion = Math.floor(first / PORTION); portion * PORTION < last; portion++) {
      if (this.#asked.has(portion) || portion * PORTION >= (this.total ?? 0)) continue;
      this.#asked.add(portion);
      void this.#fetch(portion, false);
    }
  }

  /** Takes rows that have changed. Those that are not in the list are left to the next fetch. */
  update(changed: RunRow[]): void {
    const fresh = new Map(changed.map((row) => [row.id, row]));
    this.rows = this.rows.map((row) => (row && fresh.get(row.id)) ?? row);
  }

  has(id: string): boolean {
    return this.rows.some((row) => row?.id === id);
  }

  async #fetch(portion: number, anew: boolean): Promise<void> {
    const [wanted, turn] = [this.#wanted, this.#turn];
    if (!wanted) return;
    try {
      const list = await api.get<RunList>("runs", { ...wanted, limit: PORTION, offset: portion * PORTION });
      if (turn === this.#turn) this.#take(list, portion, anew);
    } catch (error) {
      this.#asked.delete(portion);
      if (turn === this.#turn) this.problem = asApiError(error);
    }
  }

  #take(list: RunList, portion: number, anew: boolean): void {
    this.problem = null;
    this.fault = list.filter_error;
    this.configKeys = list.config_keys;
    this.tags = list.tags;
    this.attention = list.attention;
    if (list.filter_error && this.total !== null) return;
    const rows = anew ? new Array<RunRow | undefined>(list.total).fill(undefined) : [...this.rows];
    list.runs.forEach((run, at) => (rows[portion * PORTION + at] = run));
    [this.rows, this.total] = [rows, list.total];
  }
}
