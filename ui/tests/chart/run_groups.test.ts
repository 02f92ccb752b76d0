import { describe, expect, test } from "vitest";
import { buildLines, type LineOptions } from "../../src/chart/series/lines";
import { SourceLine } from "../../src/chart/series/source";
import { ChartSync } from "../../src/chart/control/sync";
import { bucketsOf } from "../synthetic";

const OPTIONS: LineOptions = {
  runs: ["a", "b", "c"].map((id) => ({ id, name: id, colour: "#111111" })),
  keys: ["loss"],
  per: "none",
  secondAxis: [],
  noSmoothing: [],
  expanded: false,
  grouped: {
    spread: "range",
    groups: [
      { label: "lr 0.1 (2 runs)", colour: "#222222", runs: ["a", "c"] },
      { label: "lr 0.2 (1 run)", colour: "#333333", runs: ["b"] },
    ],
  },
};
const source = (run: string, x: number[], values: number[], more = {}) =>
  new SourceLine(run, bucketsOf("loss", x, values, x, more), more && !("axis" in more));

describe("the lines of groups", () => {
  test("are one for each group, in its colour and under its name", () => {
    const lines = buildLines(
      [source("a", [0, 1], [1, 2]), source("b", [0, 1], [7, 7]), source("c", [0, 1], [3, 6])],
      OPTIONS,
      new ChartSync(),
    );
    expect(lines.map((line) => line.label)).toEqual(["lr 0.1 (2 runs)", "lr 0.2 (1 run)"]);
    expect(lines.map((line) => line.colour)).toEqual(["#222222", "#333333"]);
    expect([...lines[0]!.value]).toEqual([2, 4]);
    expect([...lines[0]!.max]).toEqual([3, 6]);
  });

  test("of a seventh group are dashed, because the colours begin again", () => {
    const ids = Array.from({ length: 8 }, (_, at) => `r${at}`);
    const lines = buildLines(
      ids.map((id) => source(id, [0, 1], [1, 2])),
      {
        ...OPTIONS,
        runs: ids.map((id) => ({ id, name: id, colour: "#111111" })),
        grouped: { spread: "range", groups: ids.map((id) => ({ label: id, colour: "#222222", runs: [id] })) },
      },
      new ChartSync(),
    );
    expect(lines.map((line) => line.dash.length > 0)).toEqual(ids.map((_, at) => at >= 6));
  });

  test("leave out what was superseded", () => {
    const old = source("a", [1], [100], { superseded: true, segment: "s0" });
    const [line] = buildLines([source("a", [0, 1], [1, 2]), old], OPTIONS, new ChartSync());
    expect([...line!.value]).toEqual([1, 2]);
  });

  test("start at the zero of each run's own time", () => {
    const sync = new ChartSync({ state: { axis: "active" } });
    const segment = { id: "s", status: "finished" as const, reason: "", first_step: 0, last_step: 1 };
    sync.setSegments("a", [{ ...segment, started: 1000, ended: 1010 }]);
    sync.setSegments("c", [{ ...segment, started: 5000, ended: 5010 }]);
    const timed = (run: string, from: number, values: number[]) =>
      source(run, [from, from + 4, from + 8], values, { axis: "seconds" });
    const [line] = buildLines([timed("a", 1000, [1, 1, 1]), timed("c", 5000, [3, 5, 7])], OPTIONS, sync);
    expect([...line!.x]).toEqual([0, 4, 8]);
    expect([...line!.mean]).toEqual([2, 3, 4]);
  });
});
