import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { ApiError } from "../../src/data/api";
import { ChartData } from "../../src/chart/series/chart_data";
import { ChartSync } from "../../src/chart/control/sync";
import { bucketsOf } from "../synthetic";
import { settle, StagedLoader, StagedStream } from "./stage";

class Stage {
  readonly loader = new StagedLoader();
  readonly live = new StagedStream();
  readonly sync = new ChartSync({ stream: this.live.stream });
  changes = 0;
  readonly model: ChartData;

  constructor(per: "rank" | "none" = "none", keys = ["loss"]) {
    this.model = new ChartData(
      { runs: ["r"], keys, per },
      this.sync,
      () => (this.changes += 1),
      this.loader,
    );
    this.model.start(1600);
  }

  async loaded(): Promise<this> {
    await settle();
    await this.loader.answer([bucketsOf("loss", [0, 1, 2], [3, 2, 1])]);
    return this;
  }

  get values(): number[] {
    return [...this.model.lines[0]!.columns.mean];
  }
}

const coarse = () =>
  bucketsOf("loss", [0, 4, 8], [3, 2, 1], [0, 4, 8], {
    width: 4,
    exact: false,
    count: Float64Array.of(4, 4, 4),
  });

describe("a chart's numbers", () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  test("are requested with half as many buckets as pixels, after the stream was opened", async () => {
    const stage = new Stage();
    expect(stage.live.wanted).toEqual([["loss"]]);
    await settle();
    expect(stage.loader.asked[0]).toMatchObject({
      run: "r",
      keys: ["loss"],
      axis: "step",
      merge: true,
      buckets: 800,
    });
  });

  test("grow with what the stream brings", async () => {
    const stage = await new Stage().loaded();
    stage.live.points("loss", [3, 4], [0.5, 0.25]);
    expect(stage.values).toEqual([3, 2, 1, 0.5, 0.25]);
    expect(stage.changes).toBe(2);
  });

  test("add a point that is sent twice once", async () => {
    const stage = await new Stage().loaded();
    stage.live.points("loss", [2, 3], [1, 0.5]);
    stage.live.points("loss", [3], [0.5]);
    expect(stage.values).toEqual([3, 2, 1, 0.5]);
    expect(stage.changes).toBe(2);
  });

  test("do not miss points that arrive while the history is loading", async () => {
    const stage = new Stage();
    await settle();
    stage.live.points("loss", [2, 3], [1, 0.5]);
    await stage.loader.answer([bucketsOf("loss", [0, 1, 2], [3, 2, 1])]);
    expect(stage.values).toEqual([3, 2, 1, 0.5]);
  });

  test("of each rank grow apart", async () => {
    const stage = new Stage("rank");
    await settle();
    await stage.loader.answer([0, 1].map((rank) => bucketsOf("loss", [0], [rank], [0], { rank })));
    stage.live.points("loss", [1], [7], { rank: 1 });
    expect(stage.model.lines.map((line) => line.columns.mean.length)).toEqual([1, 2]);
  });

  test("of all ranks combined add every rank's points, though their times are mixed", async () => {
    const stage = await new Stage().loaded();
    stage.live.points("loss", [3], [4], { rank: 0, times: [10] });
    stage.live.points("loss", [3], [2], { rank: 1, times: [9] });
    expect(stage.values).toEqual([3, 2, 1, 3]);
  });

  test("of a run with several segments are requested separately, so that superseded parts are known", async () => {
    const stage = await new Stage().loaded();
    expect(stage.loader.asked[0]!.merge).toBe(true);
    stage.live.say("run", { id: "r", segments: 1 });
    expect(stage.model.isStale).toBe(false);
    stage.live.say("run", { id: "r", segments: 2 });
    await settle();
    expect(stage.loader.asked[1]!.merge).toBeUndefined();
    stage.live.say("run", { id: "r", segments: 2 });
    await settle();
    expect(stage.loader.asked).toHaveLength(2);
  });

  test("become stale when the page learns of segments after they were loaded", async () => {
    const stage = await new Stage().loaded();
    const segment = {
      status: "running" as const,
      reason: "",
      started: 0,
      ended: null,
      first_step: 0,
      last_step: 1,
    };
    stage.sync.segments = [
      { id: "a", ...segment },
      { id: "b", ...segment },
    ];
    expect(stage.model.isStale).toBe(true);
  });

  test("are loaded again when a new rank appears or the server asks for it", async () => {
    const stage = new Stage("rank");
    await settle();
    await stage.loader.answer([bucketsOf("loss", [0], [1], [0], { rank: 0 })]);
    stage.live.points("loss", [1], [7], { rank: 5 });
    await vi.advanceTimersByTimeAsync(1000);
    expect(stage.loader.asked).toHaveLength(2);
    stage.live.say("resync", { why: "too far behind" });
    await settle();
    expect(stage.loader.asked).toHaveLength(3);
  });

  test("of a machine are placed at the step that was being done", async () => {
    const stage = await new Stage().loaded();
    stage.live.points("loss", [5], [9], { axis: "seconds", times: [5.5] });
    expect([...stage.model.lines[0]!.columns.start]).toEqual([0, 1, 2, 5]);
  });

  test("of a machine stay at the last step while the training does not go on", async () => {
    const stage = await new Stage().loaded();
    stage.live.points("loss", [2, 2, 2], [9, 9, 9], { axis: "seconds", times: [600, 6000, 60_000] });
    expect([...stage.model.lines[0]!.columns.start]).toEqual([0, 1, 2]);
    expect(stage.sync.xOf({ step: null, time: 60_000 }, "r")).toBe(2);
  });

  test("are refined at once, and again when a zoom that goes on has been still", async () => {
    const stage = new Stage();
    await settle();
    await stage.loader.answer([coarse()]);
    stage.model.refineSoon({ from: 4, to: 6 });
    await vi.advanceTimersByTimeAsync(1);
    expect(stage.loader.asked[1]).toMatchObject({ from: 3, to: 7 });
    await vi.advanceTimersByTimeAsync(99);
    stage.model.refineSoon({ from: 4, to: 8 });
    await vi.advanceTimersByTimeAsync(149);
    expect(stage.loader.asked).toHaveLength(2);
    await vi.advanceTimersByTimeAsync(1);
    expect(stage.loader.asked[2]).toMatchObject({ from: 3, to: 9 });
    expect(stage.values).toEqual([3, 2, 1]);
    await stage.loader.answer([bucketsOf("loss", [4, 5, 6, 7, 8, 9], [2, 2.5, 2, 1.5, 1, 0.5])]);
    expect([...stage.model.lines[0]!.columns.start]).toEqual([0, 4, 5, 6, 7, 8, 9]);
    stage.model.refineSoon(null);
    expect(stage.values).toEqual([3, 2, 1]);
  });

  test("that are exact already are not asked for again by a zoom", async () => {
    const stage = await new Stage().loaded();
    stage.model.refineSoon({ from: 0, to: 1 });
    await vi.advanceTimersByTimeAsync(1000);
    expect(stage.loader.asked).toHaveLength(1);
  });

  test("of an older zoom never replace those of a newer one", async () => {
    const stage = new Stage();
    await settle();
    await stage.loader.answer([coarse()]);
    stage.model.refineSoon({ from: 0, to: 4 });
    await vi.advanceTimersByTimeAsync(150);
    stage.model.refineSoon({ from: 4, to: 8 });
    expect(stage.loader.asked[1]!.signal!.aborted).toBe(true);
  });

  test("that cannot be had leave a message; the picture that was there stays", async () => {
    const stage = new Stage();
    await settle();
    await stage.loader.refuse(new ApiError(500, "Something went wrong."));
    expect([stage.model.state, stage.model.problem]).toEqual(["failed", "Something went wrong."]);
    const later = await new Stage().loaded();
    void later.model.load();
    await settle();
    await later.loader.refuse(new ApiError(0, "The server does not answer."));
    expect([later.model.state, later.values.length]).toEqual(["ready", 3]);
  });

  test("name the keys that no run has", async () => {
    const stage = new Stage("none", ["loss", "gone"]);
    await settle();
    await stage.loader.answer([bucketsOf("loss", [0], [1])], ["gone"]);
    expect(stage.model.missing).toEqual(["gone"]);
  });

  test("are freed with everything that feeds them", async () => {
    const stage = await new Stage().loaded();
    stage.model.clear();
    stage.live.points("loss", [3], [1]);
    expect([stage.model.lines.length, stage.live.wanted.length, stage.model.state]).toEqual([0, 0, "empty"]);
  });
});
