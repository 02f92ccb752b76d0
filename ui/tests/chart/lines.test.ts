import { describe, expect, test } from "vitest";
import { keyLabels } from "../../src/chart/series/labels";
import { buildLines, type LineOptions } from "../../src/chart/series/lines";
import { SourceLine } from "../../src/chart/series/source";
import { ChartSync } from "../../src/chart/control/sync";
import type { Segment } from "../../src/data/types";
import { bucketsOf } from "../synthetic";

const OPTIONS: LineOptions = {
  runs: null,
  keys: ["loss"],
  per: "none",
  secondAxis: [],
  noSmoothing: [],
  expanded: false,
};
const source = (key: string, x: number[], values: number[], more = {}, run = "r") =>
  new SourceLine(run, bucketsOf(key, x, values, x, more), true);

describe("the lines of a chart", () => {
  test("have the shortest names that distinguish them", () => {
    expect(keyLabels(["phase/data_seconds", "phase/forward_seconds"])).toEqual(["data", "forward"]);
    expect(keyLabels(["train/loss", "val/loss"])).toEqual(["train/loss", "val/loss"]);
    expect(keyLabels(["phase/data_seconds", "step_seconds"])).toEqual(["data", "step"]);
    expect(keyLabels(["step_seconds"])).toEqual(["step seconds"]);
    expect(keyLabels(["loss", "learning_rate"])).toEqual(["loss", "learning rate"]);
  });

  test("take colours in a fixed order, then the same with dashes", () => {
    const keys = Array.from({ length: 8 }, (_, at) => `k${at}`);
    const lines = buildLines(
      keys.map((key) => source(key, [0], [1])),
      { ...OPTIONS, keys },
      new ChartSync(),
    );
    expect(lines[0]).toMatchObject({ colour: "#0072b2", dash: [] });
    expect(lines[6]!.colour).toBe("#0072b2");
    expect(lines[6]!.dash.length).toBeGreaterThan(0);
  });

  test("of a seventh run are dashed, because the colours begin again", () => {
    const runs = Array.from({ length: 8 }, (_, at) => ({ id: `r${at}`, name: `r${at}`, colour: "#111111" }));
    const sources = runs.map(({ id }) => source("loss", [0], [1], {}, id));
    const lines = buildLines(sources, { ...OPTIONS, runs }, new ChartSync());
    expect(lines.map((line) => line.dash.length > 0)).toEqual(runs.map((_, at) => at >= 6));
  });

  test("keep the colour a person has chosen", () => {
    const sync = new ChartSync();
    sync.colours.set("loss", "#123456");
    expect(buildLines([source("loss", [0], [1])], OPTIONS, sync)[0]!.colour).toBe("#123456");
  });

  test("are called what a person calls them, and keep colour and place by the name they had", () => {
    const sync = new ChartSync();
    sync.names.set("loss", "ours");
    sync.colours.set("loss", "#123456");
    sync.pinned.add("loss");
    const [line] = buildLines([source("loss", [0], [1])], OPTIONS, sync);
    expect([line!.label, line!.origin, line!.colour, line!.pinned]).toEqual(["ours", "loss", "#123456", true]);
  });

  test("of several ranks are named by rank", () => {
    const ranks = [0, 1].map((rank) => source("loss", [0, 1], [rank, rank], { rank }));
    const lines = buildLines(ranks, { ...OPTIONS, per: "rank" }, new ChartSync());
    expect(lines.map((line) => line.label)).toEqual(["rank 0", "rank 1"]);
  });

  test("of more than eight ranks become their mean, their range and the worst by name", () => {
    const ranks = Array.from({ length: 9 }, (_, rank) =>
      source("step_seconds", [0, 1], [rank === 4 ? 90 : rank, 1], { rank }),
    );
    const options = { ...OPTIONS, keys: ["step_seconds"], per: "rank" as const };
    const lines = buildLines(ranks, options, new ChartSync());
    expect(lines.map((line) => line.label)).toEqual(["mean of 9", "worst: rank 4"]);
    expect([lines[0]!.min[0], lines[0]!.max[0], lines[0]!.mean[0]]).toEqual([0, 90, (36 - 4 + 90) / 9]);
    expect(buildLines(ranks, { ...options, expanded: true }, new ChartSync())).toHaveLength(9);
  });

  test("name the idle device as the worst where more is better", () => {
    const key = "gpu_utilization_ratio";
    const devices = Array.from({ length: 9 }, (_, at) =>
      source(key, [0], [at === 7 ? 0.1 : 0.9], { device: `gpu ${at}` }),
    );
    const lines = buildLines(devices, { ...OPTIONS, keys: [key], per: "device" }, new ChartSync());
    expect(lines[1]!.label).toBe("worst: gpu 7");
  });

  test("of overlaid runs take the run's colour and name", () => {
    const runs = [
      { id: "a", name: "first", colour: "#111111" },
      { id: "b", name: "second", colour: "#222222" },
    ];
    const lines = buildLines(
      [source("loss", [0], [1], {}, "a"), source("loss", [0], [2], {}, "b")],
      { ...OPTIONS, runs },
      new ChartSync(),
    );
    expect(lines.map((line) => [line.label, line.colour])).toEqual([
      ["first", "#111111"],
      ["second", "#222222"],
    ]);
  });

  test("of several keys of overlaid runs differ in their stroke", () => {
    const runs = [{ id: "a", name: "first", colour: "#111111" }];
    const keys = ["loss", "accuracy"];
    const sources = keys.map((key) => source(key, [0], [1], {}, "a"));
    const [loss, accuracy] = buildLines(sources, { ...OPTIONS, keys, runs }, new ChartSync());
    expect([loss!.colour, loss!.dash]).toEqual(["#111111", []]);
    expect(accuracy!.colour).toBe("#111111");
    expect(accuracy!.dash.length).toBeGreaterThan(0);
  });

  test("are distinguished by key in merged charts", () => {
    const ranks = [0, 1].flatMap((rank) => [
      source("loss", [0, 1], [rank, rank], { rank }),
      source("step_seconds", [0, 1], [rank, rank], { rank }),
    ]);
    const keys = ["loss", "step_seconds"];
    const lines = buildLines(ranks, { ...OPTIONS, keys, perKey: { loss: "rank" } }, new ChartSync());
    expect(lines.map((line) => line.label)).toEqual(["loss · rank 0", "loss · rank 1", "step seconds"]);
  });

  test("share a group with their superseded tail", () => {
    const lines = buildLines(
      [source("loss", [0, 1], [1, 1]), source("loss", [1, 2], [5, 6], { superseded: true, segment: "old" })],
      OPTIONS,
      new ChartSync(),
    );
    expect(lines.map((line) => line.superseded)).toEqual([false, true]);
    expect(lines[0]!.group).toBe(lines[1]!.group);
  });

  test("of a resumed run go on where the segment before was left", () => {
    const sources = [
      source("loss", [0, 1], [1, 2], { segment: "a" }),
      source("loss", [2, 3], [3, 4], { segment: "b" }),
      source("loss", [2, 3, 4], [9, 9, 9], { segment: "a", superseded: true }),
    ];
    const lines = buildLines(sources, OPTIONS, new ChartSync());
    expect(lines.map((line) => [...line.x])).toEqual([
      [0, 1, 2, 3],
      [2, 3, 4],
    ]);
    expect([...lines[0]!.value]).toEqual([1, 2, 3, 4]);
  });

  test("of several ranks become one where a chart does not tell them apart", () => {
    const ranks = [0, 1].map((rank) => source("loss", [0, 1], [rank, 4], { rank, segment: "a" }));
    const [line, more] = buildLines(ranks, OPTIONS, new ChartSync());
    expect(more).toBeUndefined();
    expect([...line!.value]).toEqual([0.5, 4]);
    expect([line!.min[0], line!.max[0], line!.count[0]]).toEqual([0, 1, 2]);
  });

  test("are smoothed unless their key forbids it", () => {
    const sync = new ChartSync({ state: { smoothing: { kind: "ema", amount: 0.9 } } });
    const sources = [source("loss", [0, 1, 2], [0, 10, 0]), source("learning_rate", [0, 1, 2], [0, 10, 0])];
    const [loss, rate] = buildLines(sources, { ...OPTIONS, keys: ["loss", "learning_rate"] }, sync);
    expect(loss!.smoothed![1]).toBeLessThan(10);
    expect(rate!.smoothed).toBeNull();
  });

  test("can pass through the last finite value of each bucket", () => {
    const sync = new ChartSync({ state: { line: "last" } });
    const [line] = buildLines([source("loss", [0, 1], [1, Infinity])], OPTIONS, sync);
    expect([...line!.value]).toEqual([1, NaN]);
  });

  test("are folded where each process has its own zero", () => {
    const segment = (id: string, started: number): Segment => ({
      id,
      started,
      ended: null,
      status: "running",
      reason: "",
      first_step: 0,
      last_step: 1,
    });
    const sync = new ChartSync({
      segments: [segment("a", 100), segment("b", 200)],
      state: { axis: "process" },
    });
    const lines = buildLines([source("loss", [100, 150, 200, 250], [1, 2, 3, 4])], OPTIONS, sync);
    expect(lines.map((line) => [...line.x])).toEqual([
      [0, 50],
      [0, 50],
    ]);
    expect(new Set(lines.map((line) => line.group)).size).toBe(1);
  });
});
