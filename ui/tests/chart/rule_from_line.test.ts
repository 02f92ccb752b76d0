import { describe, expect, test } from "vitest";
import { lastValue, roundedTo, ruleFromLine } from "../../src/chart/control/rule_from_line";
import { lineOf } from "./stage";

describe("a rule made from a line across a chart", () => {
  test("fires above the line if the last value is below it, and below it otherwise", () => {
    expect(ruleFromLine("loss", 2.5, 1).condition).toBe("loss > 2.5");
    expect(ruleFromLine("loss", 2.5, 3).condition).toBe("loss < 2.5");
    expect(ruleFromLine("loss", 2.5, NaN)).toEqual({ name: "loss above 2.5", condition: "loss > 2.5" });
  });

  test("writes shares and bytes with their units", () => {
    expect(ruleFromLine("gpu/utilization_ratio", 0.525, 1, "ratio").condition).toBe("gpu/utilization_ratio < 52.5%");
    expect(ruleFromLine("gpu/memory_used_bytes", 57.2 * 2 ** 30, 0, "bytes").condition).toBe(
      "gpu/memory_used_bytes > 57.2GiB",
    );
    expect(ruleFromLine("disk/read_bytes_per_second", 3 * 2 ** 20, 0, "bytes/s").condition).toMatch(/> 3MiB$/);
    expect(ruleFromLine("memory/free_bytes", 512, 1e9, "bytes").condition).toMatch(/< 512$/);
  });

  test("has a name of at most a hundred characters", () => {
    expect(ruleFromLine("k".repeat(300), 2.5, 1).name).toMatch(/^k{90} above 2\.5$/);
  });

  test("compares with the mean of the last values of a key", () => {
    const lines = [
      lineOf([0, 1], [1, 4], { key: "a" }),
      lineOf([0, 1], [2, NaN], { key: "a" }),
      lineOf([0, 1], [9, 90], { key: "b" }),
      lineOf([0, 1], [9, 90], { key: "a", superseded: true }),
    ];
    expect(lastValue(lines, "a")).toBe(3);
    expect(lastValue(lines, "c")).toBeNaN();
  });

  test("has no more digits than pixels can tell apart", () => {
    expect(roundedTo(2.512345, 0.02)).toBe(2.51);
    expect(roundedTo(61_234_567_890, 3e8)).toBe(61_200_000_000);
    expect(roundedTo(-0.000123456, 2e-6)).toBe(-0.000123);
    expect(roundedTo(5, 0)).toBe(5);
  });
});
