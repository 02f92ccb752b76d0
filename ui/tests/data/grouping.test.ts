import { describe, expect, test } from "vitest";
import { acrossRuns, quantile, type Member } from "../../src/data/grouping";
import { bucketsOf } from "../synthetic";

function run(x: number[], values: number[]): Member {
  return { ...bucketsOf("loss", x, values), x: Float64Array.from(x) };
}

describe("runs that are put together", () => {
  test("give their mean, the least and the greatest of them, and how many there are", () => {
    const grouped = acrossRuns([run([0, 1], [1, 4]), run([0, 1], [3, 8]), run([0, 1], [2, 0])], "range");
    expect([...grouped.x]).toEqual([0, 1]);
    expect([...grouped.mean]).toEqual([2, 4]);
    expect([...grouped.min]).toEqual([1, 0]);
    expect([...grouped.max]).toEqual([3, 8]);
    expect([...grouped.count]).toEqual([3, 3]);
  });

  test("leave the outermost tenth out where quantiles are asked for", () => {
    const runs = Array.from({ length: 11 }, (_, at) => run([0], [at]));
    const grouped = acrossRuns(runs, "quantiles");
    expect([grouped.min[0], grouped.max[0], grouped.mean[0]]).toEqual([1, 9, 5]);
  });

  test("count once each, however often one of them logs", () => {
    const often = run([0, 1, 2, 3, 4, 5, 6, 7], [1, 1, 1, 1, 5, 5, 5, 5]);
    const rarely = run([0, 4], [3, 7]);
    const grouped = acrossRuns([often, rarely], "range");
    expect([...grouped.x]).toEqual([0, 4]);
    expect([...grouped.mean]).toEqual([2, 6]);
    expect(grouped.width).toBe(4);
  });

  test("meet in buckets that begin at multiples of a power of two, wherever a run begins", () => {
    const grouped = acrossRuns([run([0, 3, 6, 9], [1, 1, 1, 1]), run([5, 8, 11], [3, 3, 3])], "range");
    expect(grouped.width).toBe(4);
    expect([...grouped.x]).toEqual([4, 8]);
    expect([...grouped.count]).toEqual([2, 2]);
  });

  test("end where half of them have ended, since the mean of the others would jump", () => {
    const runs = [run([0, 1, 2, 3], [1, 1, 1, 1]), run([0, 1, 2], [3, 3, 4]), run([0, 1], [5, 5])];
    const grouped = acrossRuns(runs, "range");
    expect([...grouped.x]).toEqual([0, 1, 2]);
    expect([...grouped.mean]).toEqual([3, 3, 2.5]);
    expect([...grouped.count]).toEqual([3, 3, 2]);
    expect([...acrossRuns(runs.slice(0, 2), "range").x]).toEqual([0, 1, 2]);
    expect([...acrossRuns(runs.slice(0, 1), "range").x]).toEqual([0, 1, 2, 3]);
  });

  test("exclude values that are not finite, and count them", () => {
    const grouped = acrossRuns([run([0], [NaN]), run([0], [2])], "range");
    expect([grouped.mean[0], grouped.count[0], grouped.nonfinite[0]]).toEqual([2, 1, 1]);
  });

  test("may be none at all", () => {
    expect(acrossRuns([run([], [])], "range").x).toHaveLength(0);
    expect(quantile([], 0.5)).toBeNaN();
  });
});
