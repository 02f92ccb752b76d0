import { describe, expect, test } from "vitest";
import { dragged, gripAt } from "../../src/chart/timeline/brush";
import { cividis } from "../../src/chart/drawing/cividis";
import { glyphOf, othersOf, placeEvents, summaryOf } from "../../src/chart/timeline/event_marks";
import { cellAt, heatScale } from "../../src/chart/heatmap/heatmap_layout";
import { binScale, placeMarks, placeOf } from "../../src/chart/bars/histogram_layout";
import { logTicks, roundTicks } from "../../src/chart/drawing/scale_ticks";
import { sparkPath } from "../../src/chart/spark_path";
import { barAt, barText, hasPhases, layoutBars, paintBars, phaseFill } from "../../src/chart/bars/step_bars";
import { NOT_TIMED, type Theme } from "../../src/chart/drawing/theme";
import type { EventMark, Heatmap, StepBar } from "../../src/data/types";

const event = (kind: string, step: number, end: number | null = null): EventMark => ({
  kind,
  step,
  time: step,
  end_time: end,
  rank: null,
  label: "",
  detail: "",
});
const place = ({ step, time }: { step: number | null; time: number | null }) => step ?? time;

describe("the event lane", () => {
  test("places events in the window and excludes events outside", () => {
    const marks = placeEvents([event("alert", 5), event("alert", 50)], { from: 0, to: 10 }, place, 0.01);
    expect(marks.map((mark) => mark.at)).toEqual([0.5]);
  });

  test("shows what happened after the last step at the end", () => {
    const marks = placeEvents([event("checkpoint", 500), event("alert", 502)], { from: 0, to: 499 }, place, 0.01);
    expect(marks.map((mark) => [mark.kind, mark.at])).toEqual([["checkpoint", 1]]);
  });

  test("merges overlapping events under the most important of them", () => {
    const events = [event("epoch", 5), event("checkpoint", 5.05), event("alert", 5.02), event("epoch", 8)];
    const marks = placeEvents(events, { from: 0, to: 10 }, place, 0.02);
    expect(marks.map((mark) => [mark.kind, mark.glyph, mark.events.length])).toEqual([
      ["alert", "▲", 3],
      ["epoch", "│", 1],
    ]);
    expect(marks.map(othersOf)).toEqual(["1 epoch, 1 checkpoint", ""]);
  });

  test("are all counted, also if some are not drawn", () => {
    const events = [event("epoch", 1), event("epoch", 2), event("checkpoint", 3)];
    expect(summaryOf(events)).toBe("epoch × 2 · checkpoint × 1");
    expect(summaryOf(events, { epoch: 2500, checkpoint: 1 })).toBe("epoch × 2,500 (2 drawn) · checkpoint × 1");
    expect(summaryOf([])).toBe("No events.");
  });

  test("keeps marks of many events apart", () => {
    const events = Array.from({ length: 500 }, (_, at) => event(at % 7 ? "epoch" : "checkpoint", at / 50));
    const marks = placeEvents(events, { from: 0, to: 10 }, place, 0.02);
    for (let at = 1; at < marks.length; at += 1)
      expect(marks[at]!.at - marks[at - 1]!.at).toBeGreaterThan(0.0199);
    expect(marks.reduce((sum, mark) => sum + mark.events.length, 0)).toBe(500);
  });

  test("leaves a span beside the moments in it", () => {
    const events = [event("throttling", 5, 9), event("epoch", 5.01), event("epoch", 5.02)];
    const marks = placeEvents(events, { from: 0, to: 10 }, place, 0.02);
    expect(marks.map((mark) => mark.events.length)).toEqual([1, 2]);
  });

  test("cuts a span at the edges of the window", () => {
    const [span] = placeEvents([event("throttling", -5, 5)], { from: 0, to: 10 }, place, 0.02);
    expect([span!.at, span!.end]).toEqual([0, 0.5]);
  });

  test("has nothing to place in a window without width", () => {
    expect(placeEvents([event("alert", 5)], { from: 5, to: 5 }, place, 0.1)).toEqual([]);
  });

  test("draws each kind in its own way", () =>
    expect(["alert", "checkpoint", "whatever"].map(glyphOf)).toEqual(["▲", "■", "●"]));
});

describe("the overview", () => {
  const window = { from: 20, to: 60 };

  test("knows the cell at the pointer", () => {
    expect([5, 20, 40, 61, 90].map((x) => gripAt(x, window, 100))).toEqual([
      "new",
      "from",
      "move",
      "to",
      "new",
    ]);
    expect(gripAt(50, { from: 0, to: 100 }, 100)).toBe("new");
    expect(gripAt(50, null, 100)).toBe("new");
  });

  test("moves the window within the whole", () => {
    expect(dragged("move", window, 30, 40, 100)).toEqual({ from: 30, to: 70 });
    expect(dragged("move", window, 30, 500, 100)).toEqual({ from: 60, to: 100 });
    expect(dragged("new", window, 90, 70, 100)).toEqual({ from: 70, to: 90 });
    expect(dragged("from", window, 20, 80, 100)).toEqual({ from: 59, to: 60 });
    expect(dragged("to", window, 60, 400, 100)).toEqual({ from: 20, to: 100 });
  });
});

describe("a heatmap", () => {
  const heatmap: Heatmap = {
    key: "step_seconds",
    unit: "seconds",
    ranks: [0, 1],
    hosts: ["a", "b"],
    starts: [0, 10, 20, 30],
    width: 10,
    values: [
      [1, 2, null, 4],
      [1, 2, 3, 4],
    ],
    late: null,
  };

  test("is not darkened by one slow step", () => {
    const row = Array.from({ length: 1000 }, () => 1 as number | null);
    row[5] = 1000;
    expect(heatScale([row, row.map(() => 2)]).high).toBe(2);
  });

  test("has a scale even where all values are the same, or none is there", () => {
    expect(heatScale([[3, 3]])).toEqual({ low: 3, high: 6 });
    expect(heatScale([[null]])).toEqual({ low: 0, high: 1 });
  });

  test("knows the cell under the pointer", () => {
    expect(cellAt(heatmap, 55, 15, 100, 20)).toEqual({ rank: 1, column: 2 });
    expect(cellAt(heatmap, 101, 15, 100, 20)).toBeNull();
  });

  test("goes from dark to light", () => {
    const brightness = [0, 0.25, 0.5, 0.75, 1].map((at) =>
      cividis(at).reduce((sum, channel) => sum + channel, 0),
    );
    expect(brightness).toEqual([...brightness].sort((one, other) => one - other));
    expect(cividis(-3)).toEqual(cividis(0));
  });
});

describe("the bars of steps", () => {
  const bars = [1, 2, 3, 4].map((step) => ({
    step,
    time: 0,
    seconds: step,
    phases: { data: step / 2, forward: step / 2 },
    marks: step === 4 ? ["checkpoint"] : [],
  }));

  test("are found under the pointer", () => {
    const layout = layoutBars(bars, 462, 200, false);
    expect(layout.barWidth).toBe(100);
    expect([60, 170, 461].map((x) => barAt(layout, 4, x))).toEqual([0, 1, -1]);
    expect(layoutBars(bars, 462, 200, true).most).toBe(1);
  });

  test("describe their phases", () => {
    expect(barText(bars[3]!, ["data", "forward"])).toBe("Step 4: 4 s (data 2 s, forward 2 s) · checkpoint");
  });
});

describe("a histogram", () => {
  const even = Array.from({ length: 40 }, (_, at) => ({ low: at, high: at + 1, count: 5 }));

  test("gives a far tail the width of a bar, and the others their room", () => {
    const scale = binScale([...even, { low: 40, high: 400_000, count: 9 }], 410);
    expect(placeOf(scale, 20)).toBeGreaterThan(150);
    expect(placeOf(scale, 40)).toBeLessThan(scale.tail!.from);
    expect(scale.tail!.to - scale.tail!.from).toBeLessThan(20);
    expect(placeOf(scale, 400_000)).toBeCloseTo(410);
  });

  test("is even without such a tail", () => {
    expect(binScale(even, 400)).toMatchObject({ end: 400, tail: null });
    expect(placeOf(binScale(even, 400), 20)).toBe(200);
    expect(binScale([], 400).tail).toBeNull();
  });

  test("keeps the labels of percentiles apart, also where they are the same", () => {
    const scale = binScale(even, 400);
    const marks = (...values: number[]) =>
      placeMarks(values.map((value, at) => ({ label: `p${50 + at}`, value })), scale, 400);
    expect(marks(2, 20, 39).map((mark) => [mark.row, mark.anchor])).toEqual([
      [0, "start"],
      [0, "start"],
      [0, "end"],
    ]);
    expect(marks(2, 2.1, 2.2).map((mark) => mark.row)).toEqual([0, 1, 2]);
  });
});

describe("bars of single steps", () => {
  const bar = (step: number, seconds: number, phases = {}): StepBar => ({
    step,
    time: 0,
    seconds,
    phases,
    marks: [],
  });
  const colours = { phases: { [NOT_TIMED]: "#d5d9e0" }, series: ["#0072b2"] } as unknown as Theme;
  const drawn = (bars: StepBar[]): number[][] => {
    const boxes: number[][] = [];
    const context = new Proxy({} as CanvasRenderingContext2D, {
      get: (_, name) => (...box: number[]) => void (name === "fillRect" && box[3]! > 1 && boxes.push(box)),
      set: () => true,
    });
    const layout = layoutBars(bars, 500, 240, false);
    paintBars(context, bars, [], layout, { share: false, hovered: -1, selected: null }, colours);
    return boxes;
  };

  test("stay visible beside a few that are far longer", () => {
    const bars = Array.from({ length: 100 }, (_, at) => bar(at, at < 5 ? 0.43 : 2e-6));
    const layout = layoutBars(bars, 500, 240, false);
    expect(layout.most).toBeLessThan(1e-5);
    expect(layout.beyond).toBe(5);
    const heights = drawn(bars).map(([, , , height]) => height!);
    expect(Math.min(...heights)).toBeGreaterThan(20);
    expect(Math.max(...heights)).toBeLessThanOrEqual(layout.bottom - layout.top);
  });

  test("reach to the longest where it is not far from the others", () => {
    const layout = layoutBars([bar(0, 1), bar(1, 2), bar(2, 3)], 500, 240, false);
    expect(layout.most).toBeGreaterThan(3);
    expect(layout.beyond).toBe(0);
    expect(layoutBars([], 500, 240, false).beyond).toBe(0);
  });

  test("are drawn also for steps that were not taken apart", () => {
    expect(hasPhases(bar(0, 1))).toBe(false);
    expect(drawn([bar(0, 1), bar(1, 2)])).toHaveLength(2);
    expect(barText(bar(7, 1), [])).toBe("Step 7: 1 s");
  });

  test("have one colour for time without a phase, wherever it is in the order", () => {
    const fills = [["data", NOT_TIMED], ["data", "mine", NOT_TIMED]].map((order) => phaseFill(NOT_TIMED, order, colours));
    expect(fills).toEqual(["#d5d9e0", "#d5d9e0"]);
  });
});

describe("a small line", () => {
  test("keeps gaps, and shows a lonely point as a dot", () => {
    expect(sparkPath([0, 1, null, 1], 10, 10, 0)).toBe("M0 10L3.33 0M10 0h.01");
    expect(sparkPath([null, NaN], 10, 10)).toBe("");
    expect(sparkPath([5, 5], 10, 10, 0)).toBe("M0 5L10 5");
  });
});

describe("round ticks", () => {
  test("are within the range", () => {
    expect(roundTicks(0, 0.55, 4)).toEqual([0, 0.2, 0.4]);
    expect(roundTicks(0.15, 0.55, 5)).toEqual([0.2, 0.3, 0.4, 0.5]);
    expect(roundTicks(0.1, 0.1 + 1e-17, 5)).toEqual([0.1]);
    expect(roundTicks(1e300, 1e300 + 1e284, 5)).toHaveLength(1);
    expect(roundTicks(3, 3)).toEqual([3]);
  });
});

describe("ticks of a logarithmic axis", () => {
  test("are powers of ten, with those between where there are few", () => {
    expect(logTicks(0.00098, 1.297)).toEqual([0.001, 0.01, 0.1, 1]);
    expect(logTicks(0.3, 4)).toEqual([0.5, 1, 2]);
    expect(logTicks(1e-20, 1e20).length).toBeLessThan(10);
  });

  test("are none where there is no such axis", () => {
    expect(logTicks(0, 1)).toEqual([]);
    expect(logTicks(-1, 1)).toEqual([]);
    expect(logTicks(1, Infinity)).toEqual([]);
  });
});
