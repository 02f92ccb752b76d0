import { describe, expect, test } from "vitest";
import { fieldOf } from "../../src/chart/heatmap/device_rows";
import { lineOf } from "./stage";

const device = (label: string, x: number[], values: number[], more = {}) =>
  lineOf(x, values, { label, group: label, ...more });

describe("the field of many devices", () => {
  test("has a row for each and a column for each bucket in the window", () => {
    const lines = [device("gpu 0", [0, 8, 16, 24], [1, 2, 3, 4]), device("gpu 1", [0, 8, 16, 24], [5, 6, 7, 8])];
    const { heatmap, rows } = fieldOf(lines, { from: 8, to: 24 }, "celsius");
    expect(rows).toEqual(["gpu 0", "gpu 1"]);
    expect([heatmap.starts, heatmap.width, heatmap.unit]).toEqual([[8, 16, 24], 8, "celsius"]);
    expect(heatmap.values).toEqual([
      [2, 3, 4],
      [6, 7, 8],
    ]);
  });

  test("leaves a cell empty where a device has nothing", () => {
    const lines = [device("gpu 0", [0, 1, 2, 3], [1, 2, 3, 4]), device("gpu 1", [0, 1, 2], [5, NaN, 6])];
    expect(fieldOf(lines, { from: 0, to: 3 }, "").heatmap.values[1]).toEqual([5, null, 6, null]);
  });

  test("joins buckets into their mean where there are more than columns", () => {
    const x = Array.from({ length: 1000 }, (_, at) => at);
    const { heatmap } = fieldOf([device("gpu 0", x, x)], { from: 0, to: 999 }, "");
    expect(heatmap.starts.length).toBeLessThanOrEqual(400);
    expect(heatmap.values[0]!.slice(0, 2)).toEqual([1, 4]);
    expect(heatmap.values[0]).not.toContain(null);
  });

  test("has no holes where buckets are not whole numbers apart", () => {
    const x = Array.from({ length: 300 }, (_, at) => 1.7e9 + at * 1.3);
    const { heatmap } = fieldOf([device("gpu 0", x, x)], { from: x[0]!, to: x[299]! }, "");
    expect(heatmap.values[0]).toHaveLength(300);
    expect(heatmap.values[0]).not.toContain(null);
  });

  test("excludes superseded lines, and lines with another unit", () => {
    const lines = [
      device("gpu 0", [0, 1], [1, 2]),
      device("gpu 1", [0, 1], [1, 2], { superseded: true }),
      device("gpu 2", [0, 1], [1, 2], { scale: "y2" }),
    ];
    expect(fieldOf(lines, { from: 0, to: 1 }, "").rows).toEqual(["gpu 0"]);
  });

  test("is empty where nothing is in the window", () => {
    expect(fieldOf([device("gpu 0", [0, 1], [1, 2])], { from: 5, to: 6 }, "").heatmap.starts).toEqual([]);
    expect(fieldOf([], { from: 5, to: 6 }, "").rows).toEqual([]);
  });
});
