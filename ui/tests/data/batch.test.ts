import { describe, expect, test } from "vitest";
import { SeriesLoader } from "../../src/data/batch";
import type { SeriesAnswer, SeriesOptions } from "../../src/data/series";
import { bucketsOf } from "../synthetic";

class Stage {
  frames: (() => void)[] = [];
  asked: { run: string; keys: string[]; options: SeriesOptions }[] = [];
  private answers: ((answer: SeriesAnswer) => void)[] = [];
  readonly loader = new SeriesLoader(
    (run, keys, options = {}) => {
      this.asked.push({ run, keys, options });
      return new Promise((resolve) => this.answers.push(resolve));
    },
    (call) => this.frames.push(call),
  );

  frame(): void {
    for (const call of this.frames.splice(0)) call();
  }

  answer(): void {
    this.asked.forEach(({ keys }, at) => {
      this.answers[at]!({
        series: keys.map((key) => bucketsOf(key, [1], [1])),
        cursor: "c",
        missing: keys.filter((key) => key === "none"),
      });
    });
  }
}

describe("the charts of a page", () => {
  test("ask once per frame, together", async () => {
    const stage = new Stage();
    const loss = stage.loader.ask({ run: "r", keys: ["loss"], buckets: 300 });
    const both = stage.loader.ask({ run: "r", keys: ["loss", "none"], buckets: 750 });
    expect(stage.asked).toHaveLength(0);
    stage.frame();
    expect(stage.asked.map(({ keys, options }) => [keys, options.buckets])).toEqual([
      [["loss", "none"], 800],
    ]);
    stage.answer();
    expect((await loss).series.map((one) => one.key)).toEqual(["loss"]);
    expect((await loss).missing).toEqual([]);
    expect((await both).missing).toEqual(["none"]);
  });

  test("ask apart for different windows, runs and places", () => {
    const stage = new Stage();
    for (const more of [{}, { from: 5 }, { merge: true }, { rank: 1 }])
      void stage.loader.ask({ run: "r", keys: ["loss"], ...more });
    void stage.loader.ask({ run: "s", keys: ["loss"] });
    stage.frame();
    expect(stage.asked).toHaveLength(5);
  });

  test("ask for 40 keys at a time, so that the first are not kept waiting", () => {
    const stage = new Stage();
    for (let at = 0; at < 100; at += 1) void stage.loader.ask({ run: "r", keys: [`key${at}`] });
    stage.frame();
    expect(stage.asked.map(({ keys }) => keys.length)).toEqual([40, 40, 20]);
  });

  test("that are aborted send no request, and stop one that nobody needs", async () => {
    const stage = new Stage();
    const [one, other, early] = [new AbortController(), new AbortController(), new AbortController()];
    const lost = [
      stage.loader.ask({ run: "r", keys: ["a"], signal: one.signal }),
      stage.loader.ask({ run: "r", keys: ["b"], signal: other.signal }),
      stage.loader.ask({ run: "r", keys: ["c"], signal: early.signal }),
    ].map((promise) => expect(promise).rejects.toThrow("no longer needs"));
    early.abort();
    stage.frame();
    expect(stage.asked[0]!.keys).toEqual(["a", "b"]);
    one.abort();
    expect(stage.asked[0]!.options.signal!.aborted).toBe(false);
    other.abort();
    expect(stage.asked[0]!.options.signal!.aborted).toBe(true);
    await Promise.all(lost);
  });
});
