import { describe, expect, test } from "vitest";
import { boundsOf, boundsText } from "../../src/chart/series/y_bounds";

describe("a y range that is typed", () => {
  test("is two numbers, either of which may be left out", () => {
    expect(boundsOf("0", " 2.5 ", false)).toEqual({ low: 0, high: 2.5 });
    expect(boundsOf("", "-1e-3", false)).toEqual({ low: null, high: -0.001 });
    expect(boundsOf("", "", false)).toEqual({ low: null, high: null });
  });

  test("may be typed with units", () => {
    expect(boundsOf("90%", "1", false)).toEqual({ low: 0.9, high: 1 });
    expect(boundsOf("20ms", "1 GiB", false)).toEqual({ low: 0.02, high: 2 ** 30 });
  });

  test("is refused if it is not a number, reversed, or not positive on a logarithmic axis", () => {
    expect(boundsOf("much", "", false)).toMatch(/“much” is not a number/);
    expect(boundsOf("5 parsecs", "", false)).toMatch(/is not a number/);
    expect(boundsOf("1e999", "", false)).toMatch(/is not a number/);
    expect(boundsOf("3", "2", false)).toMatch(/must be below/);
    expect(boundsOf("2", "2", false)).toMatch(/must be below/);
    expect(boundsOf("0", "2", true)).toMatch(/logarithmic/);
  });

  test("is shown in the unit of the chart", () => {
    expect(boundsText({ low: 0.5, high: 1 }, "ratio")).toBe("y 50% – 100%");
    expect(boundsText({ low: null, high: 2 }, "")).toBe("y ≤ 2");
    expect(boundsText({ low: 2, high: null }, "")).toBe("y ≥ 2");
  });
});
