import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { compose, toneOf, type ChartSettings } from "../../src/chart/drawing/compose";
import { toX, toY, xAt, yAt, type Frame } from "../../src/chart/drawing/plot_frame";
import { isGapBefore } from "../../src/chart/series/gaps";
import { MAX_READINGS, readingsAt } from "../../src/chart/series/nearest";
import { paintMarks } from "../../src/chart/drawing/paint";
import { endLabels, spread } from "../../src/chart/drawing/paint_labels";
import { stack, stackHeight, WHOLE, withRest } from "../../src/chart/series/stack";
import { NOT_TIMED } from "../../src/chart/drawing/theme";
import type { Canvas } from "../../src/chart/drawing/svg_canvas";
import type { Theme } from "../../src/chart/drawing/theme";
import { ChartSync } from "../../src/chart/control/sync";
import { nonPositive, yRange, type YOptions } from "../../src/chart/series/y_range";
import { lineOf } from "./stage";

const FRAME: Frame = {
  left: 50,
  top: 10,
  width: 100,
  height: 200,
  ratio: 1,
  x: { min: 0, max: 10, log: false },
  y: { min: 0, max: 100, log: false },
  y2: null,
};
const WINDOW = { from: 0, to: 10 };
const Y: YOptions = { fixed: null, fromZero: false, percent: false, log: false, clip: false, band: false };

describe("a place on the canvas", () => {
  test("is found from a value and back, also on a logarithm", () => {
    fc.assert(
      fc.property(fc.double({ min: 0.01, max: 10, noNaN: true }), fc.boolean(), (value, log) => {
        const frame = { ...FRAME, x: { min: 0.01, max: 10, log }, y: { min: 0.01, max: 10, log } };
        expect(xAt(frame, toX(frame, value))).toBeCloseTo(value, 6);
        expect(yAt(frame, toY(frame, value))).toBeCloseTo(value, 6);
      }),
    );
  });

  test("of what has no logarithm is the floor", () => {
    expect(toY({ ...FRAME, y: { min: 0.1, max: 10, log: true } }, -3)).toBe(210);
  });
});

describe("values that are not finite", () => {
  const drawn = (nonfinite: number[]): { texts: string[]; rectangles: number[][]; rights: number[] } => {
    const drawing = { texts: [] as string[], rectangles: [] as number[][], rights: [] as number[] };
    const canvas = {
      beginPath() {},
      moveTo() {},
      closePath() {},
      fill() {},
      lineTo: (x: number) => drawing.rights.push(x),
      rect: (...box: number[]) => drawing.rectangles.push(box),
      fillText: (text: string) => drawing.texts.push(text),
    };
    const line = lineOf(
      nonfinite.map((_, at) => at),
      nonfinite.map((count) => (count ? NaN : 50)),
    );
    line.nonfinite.set(nonfinite);
    paintMarks(canvas as unknown as Canvas, FRAME, [line], { bad: "red", warn: "amber", font: "x" } as Theme);
    return drawing;
  };

  test("from a step on is one strip with one count", () => {
    const { texts, rectangles } = drawn([0, 0, 0, 0, 0, 4, 4, 4, 4, 4, 4]);
    expect(texts).toEqual(["24"]);
    expect(rectangles).toHaveLength(1);
  });

  test("here and there is a triangle each, without a strip", () => {
    const { texts, rectangles } = drawn([0, 3, 0, 0, 0, 0, 0, 2, 0, 0, 0]);
    expect(texts).toEqual(["3", "2"]);
    expect(rectangles).toEqual([]);
  });

  test("at the last step is drawn inside the frame", () => {
    const { rights } = drawn([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    expect(Math.max(...rights)).toBeLessThanOrEqual(FRAME.left + FRAME.width);
  });
});

describe("a gap", () => {
  const gaps = (x: number[], values = x) =>
    x.map((_, at) => at).filter((at) => at > 0 && isGapBefore(x, values, at, 1));

  test("is where there is no value", () => expect(gaps([0, 1, 2, 3], [5, NaN, 5, 5])).toEqual([1, 2]));
  test("is where a stretch is missing", () => expect(gaps([0, 1, 2, 100, 101, 102])).toEqual([3]));
  test("is not where logging became rarer", () => expect(gaps([0, 1, 2, 3, 53, 103, 153])).toEqual([]));
  test("is not between the few points of an evaluation", () =>
    expect(gaps([0, 500, 1000, 1500])).toEqual([]));
});

describe("the y axis", () => {
  test("reaches a little further than the data", () => {
    const { min, max } = yRange([lineOf([0, 5], [40, 60])], WINDOW, Y);
    expect([min, max].map(Math.round)).toEqual([39, 61]);
  });

  test("uses only values in the window", () => {
    expect(yRange([lineOf([0, 5, 50], [40, 60, 9000])], WINDOW, Y).max).toBeLessThan(70);
  });

  test("reaches as far as the band when it is drawn", () => {
    const line = lineOf([0, 5], [40, 60], { min: Float64Array.of(10, 60), max: Float64Array.of(40, 95) });
    expect(yRange([line], WINDOW, { ...Y, band: true }).max).toBeGreaterThan(95);
    expect(yRange([{ ...line, plain: true }], WINDOW, { ...Y, band: true }).max).toBeLessThan(70);
  });

  test("starts at zero when it should, and for percent ends at 100", () => {
    expect(yRange([lineOf([0, 5], [40, 60])], WINDOW, { ...Y, fromZero: true }).min).toBe(0);
    expect(yRange([lineOf([0, 5], [0.4, 0.6])], WINDOW, { ...Y, percent: true })).toMatchObject({
      min: 0,
      max: 1,
    });
  });

  test("counts values outside of the range when outliers are clipped", () => {
    const x = Array.from({ length: 200 }, (_, at) => at / 20);
    const values = x.map((_, at) => (at === 50 ? 1e6 : at % 10));
    const clipped = yRange([lineOf(x, values)], WINDOW, { ...Y, clip: true });
    expect(clipped.above).toBe(1);
    expect(clipped.max).toBeLessThan(20);
    expect(yRange([lineOf(x, values)], WINDOW, Y)).toMatchObject({ above: 0 });
  });

  test("of a logarithm leaves out what has none, and can say how many", () => {
    const line = lineOf([0, 1, 2], [-1, 0, 10]);
    const { min, max } = yRange([line], WINDOW, { ...Y, log: true });
    expect(min).toBeGreaterThan(0);
    expect(max).toBeGreaterThan(10);
    expect(nonPositive(line, WINDOW)).toBe(2);
  });

  test("of a constant is around it, of zero above it", () => {
    const flat = yRange([lineOf([0, 1], [7, 7])], WINDOW, Y);
    expect([flat.min, flat.max].map((value) => value.toFixed(1))).toEqual(["6.3", "7.7"]);
    expect(yRange([lineOf([0, 1], [0, 0])], WINDOW, Y)).toMatchObject({ min: 0, max: 1 });
    expect(yRange([lineOf([0, 1], [7, 7])], WINDOW, { ...Y, fromZero: true }).min).toBe(0);
  });

  test("reaches the greatest numbers there are, and places them inside", () => {
    const { min, max } = yRange([lineOf([0, 1], [-1e308, 1e308])], WINDOW, Y);
    expect(min).toBeLessThan(-1e308);
    expect(max).toBeGreaterThan(1e308);
    const frame = { ...FRAME, y: { min, max, log: false } };
    const [low, high] = [toY(frame, -1e308), toY(frame, 1e308)];
    expect(high).toBeGreaterThan(FRAME.top);
    expect(low).toBeLessThan(FRAME.top + FRAME.height);
    expect(low - high).toBeGreaterThan(FRAME.height * 0.8);
    expect(yAt(frame, high) / 1e308).toBeCloseTo(1, 6);
    const ends = yRange([lineOf([0, 1], [-Number.MAX_VALUE, Number.MAX_VALUE])], WINDOW, Y);
    expect([ends.min, ends.max].every(Number.isFinite)).toBe(true);
  });

  test("of the smallest numbers there are has a height", () => {
    for (const value of [5e-324, -5e-324]) {
      const { min, max } = yRange([lineOf([0, 1], [value, value])], WINDOW, Y);
      const y = toY({ ...FRAME, y: { min, max, log: false } }, value);
      expect(y).toBeGreaterThanOrEqual(FRAME.top);
      expect(y).toBeLessThanOrEqual(FRAME.top + FRAME.height);
    }
    const { min, max } = yRange([lineOf([0, 1], [5e-324, 1e308])], WINDOW, { ...Y, log: true });
    expect(min).toBeGreaterThan(0);
    expect(Number.isFinite(max)).toBe(true);
  });

  test("of a window without any finite value is that of the whole line", () => {
    const line = lineOf([0, 5, 20, 30], [40, 60, NaN, NaN]);
    expect(yRange([line], { from: 15, to: 30 }, Y)).toEqual(yRange([line], WINDOW, Y));
  });

  test("of nothing, and of a constant, still has a height", () => {
    for (const lines of [[], [lineOf([0, 1], [5, 5])], [lineOf([0, 1], [0, 0])]]) {
      const { min, max } = yRange(lines, WINDOW, Y);
      expect(max).toBeGreaterThan(min);
    }
  });
});

describe("a stack of phases", () => {
  const lines = [
    lineOf([0, 1, 2], [1, 2, 3], { group: "data" }),
    lineOf([0, 2], [10, 30], { group: "forward" }),
  ];

  test("adds up from the bottom, and missing values count as zero", () => {
    const [data, forward] = stack(lines, false);
    expect([...data!.top]).toEqual([1, 2, 3]);
    expect([...forward!.bottom]).toEqual([1, 2, 3]);
    expect([...forward!.top]).toEqual([11, 2, 33]);
    expect(stackHeight([data!, forward!], { from: 0, to: 1 })).toBe(11);
    expect(stackHeight([data!, forward!], { from: 0, to: 2 })).toBe(33);
  });

  test("reaches up to the whole step, also where only some steps have all phases", () => {
    const whole = lineOf([0, 1, 2], [20, 20, 40], { group: "step", key: WHOLE });
    const rest = withRest([...lines, whole]).at(-1)!;
    expect([rest.label, ...rest.value]).toEqual([NOT_TIMED, 9, 18, 7]);
    expect([...stack(withRest([...lines, whole]), false).at(-1)!.top]).toEqual([20, 20, 40]);
  });

  test("has no layer for the rest if the phases are the whole step", () => {
    const whole = lineOf([0, 1, 2], [11, 2, 33], { group: "step", key: WHOLE });
    expect(withRest([...lines, whole]).map((line) => line.group)).toEqual(["data", "forward"]);
  });

  test("in shares adds up to one", () => {
    const top = stack(lines, true)[1]!.top;
    top.forEach((value) => expect(value).toBeCloseTo(1));
  });

  test("says of each phase which part of the whole it is", () => {
    const layers = stack(lines, false);
    const readings = readingsAt(FRAME, lines, 0, null, layers);
    expect(readings.map((one) => [one.group, one.share])).toEqual([
      ["forward", 10 / 11],
      ["data", 1 / 11],
    ]);
  });
});

describe("the crosshair", () => {
  test("reads the nearest bucket of each line, highest value first", () => {
    const lines = [
      lineOf([0, 4, 8], [1, 2, 3], { group: "low" }),
      lineOf([0, 4, 8], [50, 60, 70], { group: "high" }),
    ];
    const readings = readingsAt(FRAME, lines, 4.4, toY(FRAME, 5));
    expect(readings.map((one) => [one.group, one.x, one.value])).toEqual([
      ["high", 4, 60],
      ["low", 4, 2],
    ]);
    expect(readings.reduce((best, one) => (one.distance < best.distance ? one : best)).group).toBe("low");
  });

  test("reads nothing of a line that is not there", () => {
    expect(readingsAt(FRAME, [lineOf([0, 1], [1, 1])], 9, null)).toEqual([]);
  });

  test("reads the twelve nearest of many lines", () => {
    const lines = Array.from({ length: 20 }, (_, at) => lineOf([5], [at * 5], { group: `g${at}` }));
    const readings = readingsAt(FRAME, lines, 5, toY(FRAME, 95));
    expect(readings).toHaveLength(MAX_READINGS);
    expect(readings[0]!.value).toBe(95);
  });

  test("reads pinned lines first, however far away they are", () => {
    const lines = Array.from({ length: 20 }, (_, at) =>
      lineOf([5], [at * 5], { group: `g${at}`, pinned: at === 2 }),
    );
    const readings = readingsAt(FRAME, lines, 5, toY(FRAME, 95));
    expect(readings).toHaveLength(MAX_READINGS);
    expect(readings.slice(0, 2).map((one) => one.group)).toEqual(["g2", "g19"]);
  });

  test("reads a value that is not finite as such", () => {
    const [reading] = readingsAt(FRAME, [lineOf([5], [NaN])], 5, 20);
    expect(reading).toMatchObject({ nonfinite: 1, count: 1 });
  });
});

describe("labels at the ends of lines", () => {
  test("are moved apart, keep their order and stay inside", () => {
    fc.assert(
      fc.property(
        fc.array(fc.double({ min: 0, max: 200, noNaN: true }), { minLength: 1, maxLength: 6 }),
        (places) => {
          const labels = places.map((y, at) => ({ text: String(at), colour: "", y }));
          const placed = spread(labels, 14, 0, 200);
          for (let at = 1; at < placed.length; at += 1)
            expect(placed[at]!.y - placed[at - 1]!.y).toBeGreaterThanOrEqual(13.999);
          expect(placed[placed.length - 1]!.y).toBeLessThanOrEqual(200.001);
        },
      ),
    );
  });

  test("stand beside the last value, not for what was superseded", () => {
    const lines = [lineOf([0, 8], [10, 50]), lineOf([0, 3], [90, 90], { superseded: true, group: "old" })];
    expect(endLabels(FRAME, lines).map((label) => label.y)).toEqual([toY(FRAME, 50)]);
  });
});

describe("a picture", () => {
  const settings: ChartSettings = {
    run: "r",
    runs: null,
    keys: ["loss"],
    per: "none",
    secondAxis: [],
    noSmoothing: [],
    expanded: false,
    kind: "line",
    unit: "",
    secondUnit: null,
    percent: false,
    fromZero: false,
    height: 200,
    compact: false,
    logY: null,
    share: false,
    bounds: null,
    hidden: new Set(),
    events: [],
  };
  const event = (step: number, kind: string) => ({
    kind,
    step,
    time: step,
    end_time: null,
    rank: null,
    label: "",
    detail: "",
  });
  const chosen = { window: WINDOW, width: 480, yFixed: null, group: null };

  test("has a mark for each event in the window, and none of a kind that would hide the lines", () => {
    const events = [
      event(3, "alert"),
      event(99, "alert"),
      ...Array.from({ length: 40 }, (_, at) => event(at / 4, "checkpoint")),
    ];
    const { picture } = compose({ ...settings, events }, new ChartSync(), [lineOf([0, 10], [1, 2])], chosen);
    expect(picture.marks).toEqual([{ x: 3, tone: "bad" }]);
  });

  test("has every epoch that is far enough from the previous one, and keeps it while the window moves", () => {
    const events = Array.from({ length: 200 }, (_, at) => event((at + 1) / 10, "epoch"));
    const marksIn = (window: { from: number; to: number }) =>
      compose({ ...settings, events }, new ChartSync(), [lineOf([0, 20], [1, 2])], {
        ...chosen,
        window,
        width: 400,
      }).picture.marks.map(({ x }) => x);
    expect(marksIn({ from: 0, to: 20 })).toEqual([2, 4, 6, 8, 10, 12, 14, 16, 18, 20]);
    expect(marksIn({ from: 0.3, to: 20.3 })).toEqual(marksIn({ from: 0, to: 20 }));
    expect(marksIn({ from: 0, to: 1 })).toHaveLength(10);
  });

  test("reaches as far as was typed, and by the data where nothing was", () => {
    const lines = [lineOf([0, 10], [1, 2])];
    const range = (low: number | null, high: number | null, more: Partial<ChartSettings> = {}) => {
      const typed = { ...settings, bounds: { low, high }, ...more };
      const { y } = compose(typed, new ChartSync(), lines, chosen).picture;
      return [y.min, y.max].map((end) => Number(end.toFixed(2)));
    };
    expect(range(0, 5)).toEqual([0, 5]);
    expect(range(0.5, null)).toEqual([0.5, 2.06]);
    expect(range(null, 1.5)).toEqual([0.94, 1.5]);
    expect(range(8, null)).toEqual([8, 16]);
    expect(range(null, -3)).toEqual([-6, -3]);
    expect(range(0.1, 100, { logY: true })).toEqual([0.1, 100]);
    expect(range(-1, 100, { logY: true })).toEqual([0.87, 100]);
    expect(range(40, null, { logY: true })).toEqual([40, 400]);
  });

  test("is zoomed by hand within a range that was typed", () => {
    const typed = { ...settings, bounds: { low: 0, high: 5 } };
    const zoomed = { ...chosen, yFixed: { from: 1, to: 2 } };
    const { y } = compose(typed, new ChartSync(), [lineOf([0, 10], [1, 2])], zoomed).picture;
    expect([y.min, y.max]).toEqual([1, 2]);
  });

  test("has a second axis of its own reach", () => {
    const lines = [lineOf([0, 10], [1, 2]), lineOf([0, 10], [1000, 2000], { scale: "y2" })];
    const { picture } = compose({ ...settings, secondUnit: "" }, new ChartSync(), lines, chosen);
    expect(picture.y.max).toBeLessThan(3);
    expect(picture.y2!.max).toBeGreaterThan(2000);
  });

  test("of a stack starts at zero and is never logarithmic", () => {
    const { picture, style } = compose(
      { ...settings, kind: "stack" },
      new ChartSync({ state: { logY: true } }),
      [lineOf([0, 10], [1, 2])],
      chosen,
    );
    expect([picture.y.min, style.logY]).toEqual([0, false]);
  });

  test("gives a window without width one", () => {
    const { picture } = compose(settings, new ChartSync(), [lineOf([5], [1])], {
      ...chosen,
      window: { from: 5, to: 5 },
    });
    expect(picture.window.to).toBeGreaterThan(picture.window.from);
  });

  test("draws alerts louder than checkpoints", () => {
    expect(["alert", "throttling", "checkpoint"].map(toneOf)).toEqual(["bad", "warn", "muted"]);
  });
});
