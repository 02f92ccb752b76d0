import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { clockTicksOf, logTicksOf, tickDistances, ticksOf } from "../../src/format";

describe("the ticks of an axis", () => {
  test.each([
    [[0, 0.05, 0.1, 0.15], "seconds", ["0", "50 ms", "100 ms", "150 ms"]],
    [[0, 300, 600], "seconds", ["0 s", "5 min", "10 min"]],
    [[0, 2 ** 34, 2 ** 35], "bytes", ["0", "16 GiB", "32 GiB"]],
    [[0, 2 ** 29, 2 ** 30, 3 * 2 ** 29], "bytes", ["0", "0.5 GiB", "1.0 GiB", "1.5 GiB"]],
    [[0, 0.25, 0.5, 1], "ratio", ["0%", "25%", "50%", "100%"]],
    [[0, 0.001, 0.002], "ratio", ["0.0%", "0.1%", "0.2%"]],
    [[0, 20_000, 40_000], "", ["0", "20,000", "40,000"]],
    [[0, 100_000, 200_000], "", ["0", "100,000", "200,000"]],
    [[0, 1_000_000, 2_000_000], "", ["0", "1M", "2M"]],
    [[0, 2e50, 4e50], "", ["0", "2e50", "4e50"]],
    [[0, 0.5, 1, 1.5], "", ["0", "0.5", "1.0", "1.5"]],
    [[2.25, 2.5], "", ["2.25", "2.50"]],
    [[0, 0.00002, 0.00004], "", ["0", "2e-5", "4e-5"]],
    [[0.000285, 0.00029, 0.000295, 0.0003], "", ["2.85e-4", "2.90e-4", "2.95e-4", "3.00e-4"]],
    [[40, 60, 80], "celsius", ["40 °C", "60 °C", "80 °C"]],
    [[0, 500, 1000], "watts", ["0", "0.5 kW", "1.0 kW"]],
    [[-1, 0, 1], "", ["−1", "0", "1"]],
    [[0, 5, 10], "/s", ["0", "5/s", "10/s"]],
  ])("%j %s are %j", (values, unit, labels) => expect(ticksOf(values, unit)).toEqual(labels));

  test("are never the same for two places", () => {
    const unit = fc.constantFrom("", "seconds", "bytes", "ratio", "watts", "/s");
    const increment = fc
      .tuple(fc.constantFrom(1, 2, 5), fc.integer({ min: -5, max: 6 }))
      .map(([digit, power]) => digit * 10 ** power);
    fc.assert(
      fc.property(unit, increment, fc.integer({ min: -5, max: 50 }), (name, distance, first) => {
        const values = Array.from({ length: 6 }, (_, at) => (first + at) * distance);
        if (name === "seconds" && Math.max(...values.map(Math.abs)) >= 120) return;
        expect(new Set(ticksOf(values, name)).size).toBe(6);
      }),
    );
  });

  test("of a logarithm stand for themselves", () => {
    expect(logTicksOf([0.001, null, 10], "seconds")).toEqual(["1 ms", null, "10 s"]);
  });

  test("of a wall clock name the day where it begins", () => {
    const at = (hour: number) => new Date(2025, 2, 4, hour).getTime() / 1000;
    expect(clockTicksOf([at(18), at(24), at(30)])).toEqual([
      "18:00\n2025-03-04",
      "00:00\n2025-03-05",
      "06:00",
    ]);
  });

  test("of bytes are at powers of two, those of time at round minutes and hours", () => {
    expect(tickDistances("bytes")).toContain(2 ** 30);
    expect(tickDistances("seconds")).toContain(900);
    expect(tickDistances("")).toBeUndefined();
  });
});
