import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { mayBeSmoothed, referenceDistance, smooth, SMOOTHING_KINDS } from "../../src/data/smoothing";

const values = fc.array(fc.double({ min: -100, max: 100, noNaN: true }), { minLength: 1, maxLength: 80 });
const index = (length: number) => Array.from({ length }, (_, at) => at);

describe("smoothing", () => {
  test("of amount 0 changes nothing", () => {
    for (const kind of SMOOTHING_KINDS) {
      expect([...smooth([0, 1, 2], [3, NaN, 5], { kind, amount: 0 }, 1)]).toEqual([3, NaN, 5]);
    }
  });

  test("leaves a constant constant, from the first point on", () => {
    fc.assert(
      fc.property(
        fc.constantFrom(...SMOOTHING_KINDS),
        fc.double({ min: 0.01, max: 0.999, noNaN: true }),
        (kind, amount) => {
          for (const value of smooth(index(30), Array(30).fill(7), { kind, amount }, 1))
            expect(value).toBeCloseTo(7, 9);
        },
      ),
    );
  });

  test("never leaves the range of the values", () => {
    fc.assert(
      fc.property(
        values,
        fc.constantFrom(...SMOOTHING_KINDS),
        fc.double({ min: 0, max: 0.999, noNaN: true }),
        (y, kind, amount) => {
          for (const value of smooth(index(y.length), y, { kind, amount }, 1)) {
            expect(value).toBeGreaterThanOrEqual(Math.min(...y) - 1e-9);
            expect(value).toBeLessThanOrEqual(Math.max(...y) + 1e-9);
          }
        },
      ),
    );
  });

  test("has no value where there is none, and goes on after it", () => {
    for (const kind of SMOOTHING_KINDS) {
      const smoothed = smooth(index(5), [1, 1, NaN, 1, 1], { kind, amount: 0.9 }, 1);
      expect(smoothed[2]).toBeNaN();
      expect(smoothed[4]).toBeCloseTo(1);
    }
  });

  test("of equally spaced points is the debiased exponential average everybody knows", () => {
    const y = [1, 5, 2, 8, 3];
    let total = 0;
    const known = y.map((value, at) => {
      total = total * 0.6 + value * 0.4;
      return total / (1 - 0.6 ** (at + 1));
    });
    smooth(index(5), y, { kind: "ema", amount: 0.6 }, 1).forEach((value, at) =>
      expect(value).toBeCloseTo(known[at]!, 9),
    );
  });

  test("treats a series logged ten times as rarely alike", () => {
    const curve = (x: number) => Math.sin(x / 200);
    const dense = index(2000);
    const rare = dense.filter((x) => x % 10 === 0);
    const reference = referenceDistance([
      { x: dense, count: 2000 },
      { x: rare, count: 200 },
    ]);
    const one = smooth(dense, dense.map(curve), { kind: "ema", amount: 0.98 }, reference);
    const other = smooth(rare, rare.map(curve), { kind: "ema", amount: 0.98 }, reference);
    expect(Math.abs(one[1500]! - other[150]!)).toBeLessThan(0.05);
  });

  test("by running extremes follows the least and greatest of the window behind", () => {
    const y = [5, 1, 4, 9, 3, 3, 3, 3];
    const amount = 0.5; // a radius of one point: a window of two points behind
    expect([...smooth(index(8), y, { kind: "min", amount }, 1)]).toEqual([5, 1, 1, 1, 3, 3, 3, 3]);
    expect([...smooth(index(8), y, { kind: "max", amount }, 1)]).toEqual([5, 5, 5, 9, 9, 9, 3, 3]);
  });

  test("by a centred mean does not lag behind a slope", () => {
    const y = index(50).map((at) => 2 * at);
    const smoothed = smooth(index(50), y, { kind: "mean", amount: 0.8 }, 1);
    smoothed.forEach((value, at) => expect(value).toBeCloseTo(y[at]!, 9));
  });

  test("is never done to schedules, counters and what the catalogue names", () => {
    for (const key of ["lr", "train/learning_rate", "learning_rate", "epoch", "errors_total"])
      expect(mayBeSmoothed(key)).toBe(false);
    expect(mayBeSmoothed("loss")).toBe(true);
    expect(mayBeSmoothed("train/lrelu_loss")).toBe(true);
    expect(mayBeSmoothed("loss", ["loss"])).toBe(false);
  });
});
