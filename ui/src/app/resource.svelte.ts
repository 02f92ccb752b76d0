// Data fetched from the server: the last result stays while the next request runs or fails.

import { ApiError } from "../data";

export class Resource<T> {
  data = $state.raw<T | null>(null);
  problem = $state.raw<ApiError | null>(null);
  loading = $state(false);
  #turn = 0;
  #fetchedAt = -Infinity;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly fetch: () => Promise<T>) {}

  /** Fetches; of overlapping requests, only the last one counts. */
  async load(): Promise<void> {
    const turn = ++this.#turn;
    this.loading = true;
    this.#fetchedAt = performance.now();
    try {
      const data = await this.fetch();
      if (turn === this.#turn) [this.data, this.problem] = [data, null];
    } catch (error) {
      if (turn === this.#turn) this.problem = asApiError(error);
    } finally {
      if (turn === this.#turn) this.loading = false;
    }
  }

  /** Fetches again soon, but at most once every `everyS` seconds. */
  refresh(everyS = 4): void {
    if (this.#timer !== undefined) return;
    const wait = Math.max(0, this.#fetchedAt + everyS * 1000 - performance.now());
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      void this.load();
    }, wait);
  }

  /** Discards the current request, so that a response for another page is not shown. */
  stop(): void {
    this.#turn += 1;
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }
}

/** Any failure as an ApiError, so that a page can show its message. */
export function asApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  return new ApiError(0, error instanceof Error ? error.message : String(error), "");
}
