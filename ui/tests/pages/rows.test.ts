import { expect, test } from "vitest";
import { spansOf } from "../../src/pages/overview/rows";

test("every row of charts is filled, and none has more than four", () => {
  expect(spansOf(0)).toEqual([]);
  expect(spansOf(1)).toEqual([12]);
  expect(spansOf(4)).toEqual([3, 3, 3, 3]);
  expect(spansOf(5)).toEqual([4, 4, 4, 6, 6]);
  expect(spansOf(7)).toEqual([3, 3, 3, 3, 4, 4, 4]);
  expect(spansOf(9)).toEqual([4, 4, 4, 4, 4, 4, 4, 4, 4]);
  for (let charts = 1; charts <= 30; charts += 1) {
    const rows = spansOf(charts).reduce((total, span) => total + span, 0) / 12;
    expect(rows).toBe(Math.ceil(charts / 4));
  }
});
