// Code that is fetched when it is needed: pages, and panels that few people open.

import type { Component } from "svelte";

type Load = () => Promise<unknown>;

class Fetched {
  component = $state.raw<Component<never> | null>(null);
  /** Whether the last attempt failed: the server was upgraded, or does not answer. */
  failed = $state(false);
  #attempt: Promise<void> | null = null;

  constructor(private readonly load: Load) {}

  /** Fetches the code once; after a failure, again. */
  fetch(): Promise<void> {
    this.#attempt ??= this.#try();
    return this.#attempt;
  }

  async #try(): Promise<void> {
    this.failed = false;
    try {
      this.component = ((await this.load()) as { default: Component<never> }).default;
    } catch {
      this.failed = true;
      this.#attempt = null;
    }
  }
}

const known = new Map<Load, Fetched>();

/** The state of the code that a function loads. */
export function fetched(load: Load): Fetched {
  const state = known.get(load) ?? new Fetched(load);
  known.set(load, state);
  return state;
}
