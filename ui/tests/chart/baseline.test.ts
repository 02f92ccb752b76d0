import { describe, expect, test } from "vitest";
import { baselineText, differenceText, valuesAt } from "../../src/chart/series/baseline";
import { ChartSync } from "../../src/chart/control/sync";
import { lineOf } from "./stage";

describe("a baseline", () => {
  const lines = [
    lineOf([0, 4, 8], [1, 2, 3], { group: "a", width: 4 }),
    lineOf([6, 8], [60, 80], { group: "b", width: 2 }),
    lineOf([0, 4, 8], [9, 9, 9], { group: "c", superseded: true }),
  ];
  const at = (step: number) => {
    const sync = new ChartSync();
    sync.baseline = { step, time: null };
    return Object.fromEntries(valuesAt(lines, sync));
  };

  test("is what each line was in the bucket of that step", () => {
    expect(at(4)).toEqual({ a: 2, b: 60 });
    expect(at(7)).toEqual({ a: 2, b: 60 });
    expect(at(8)).toEqual({ a: 3, b: 80 });
  });

  test("is nothing of a line that was not there, and of all lines while there is none", () => {
    expect(at(1)).toEqual({ a: 1 });
    expect(valuesAt(lines, new ChartSync()).size).toBe(0);
  });

  test("notifies all charts when it is set", () => {
    const sync = new ChartSync();
    let told = 0;
    sync.subscribe(() => (told += 1));
    sync.baseline = { step: 5, time: null };
    expect([told, sync.baseline]).toEqual([2, { step: 5, time: null }]);
  });

  test("is compared with as a number and in percent", () => {
    expect(differenceText(2.5, 2, "")).toBe("+0.5 (+25%)");
    expect(differenceText(0.1, 0.2, "seconds")).toBe("−100 ms (−50%)");
    expect(differenceText(3, 0, "")).toBe("+3");
    expect(differenceText(NaN, 1, "")).toBe("");
    expect(differenceText(-1, -2, "")).toBe("+1 (+50%)");
  });

  test("is named by its step, or by its time where it has none", () => {
    expect(baselineText({ step: 1500, time: 7 })).toBe("step 1,500");
    expect(baselineText({ step: null, time: 1.7e9 })).toMatch(/^2023-11-1\d \d\d:/);
  });
});
