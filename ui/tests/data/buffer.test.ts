import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { MAX_BUCKETS, SeriesBuffer, type Points } from "../../src/data/buffer";
import type { Series } from "../../src/data/types";

interface Point {
  x: number;
  time: number;
  value: number;
}

/** Buckets all points at once, the plain way. */
function rebucket(points: Point[], width: number) {
  const groups = new Map<number, Point[]>();
  for (const point of points) {
    const start = Math.floor(point.x / width) * width;
    groups.set(start, [...(groups.get(start) ?? []), point]);
  }
  return [...groups]
    .sort(([one], [other]) => one - other)
    .map(([start, group]) => {
      const finite = group.map((point) => point.value).filter(Number.isFinite);
      const latest = group.reduce((best, point) => (point.time >= best.time ? point : best));
      return {
        start,
        count: group.length,
        min: finite.length ? Math.min(...finite) : NaN,
        max: finite.length ? Math.max(...finite) : NaN,
        mean: finite.length ? finite.reduce((total, value) => total + value, 0) / finite.length : NaN,
        last: latest.value,
        nonfinite: group.length - finite.length,
        time: latest.time,
      };
    });
}

function columnsOf(points: Point[]): Points {
  return { x: points.map((p) => p.x), times: points.map((p) => p.time), values: points.map((p) => p.value) };
}

function expectSame(buffer: SeriesBuffer, points: Point[]) {
  const wanted = rebucket(points, buffer.width);
  expect(buffer.length).toBe(wanted.length);
  wanted.forEach((bucket, at) => {
    for (const name of ["start", "count", "min", "max", "last", "nonfinite", "time"] as const) {
      expect(buffer[name][at], `${name} of bucket ${at}`).toBe(bucket[name]);
    }
    if (Number.isNaN(bucket.mean)) expect(buffer.mean[at]).toBeNaN();
    else expect(Math.abs(buffer.mean[at]! - bucket.mean)).toBeLessThanOrEqual(1e-9 * (1 + 1000));
  });
}

const value = fc.oneof(
  { weight: 8, arbitrary: fc.double({ min: -1000, max: 1000, noNaN: true }).map((v) => v + 0) },
  { weight: 1, arbitrary: fc.constantFrom(NaN, Infinity, -Infinity) },
);
const rows = fc.array(fc.record({ x: fc.integer({ min: 0, max: 400 }), value }), { maxLength: 200 });
const timed = rows.map((list) => list.map((row, at) => ({ ...row, time: 1000 + at })));

describe("a series buffer", () => {
  test("holds what a plain re-bucketing of all points gives, whatever their order and the batches", () => {
    fc.assert(
      fc.property(
        timed,
        fc.integer({ min: 1, max: 50 }),
        fc.integer({ min: 2, max: 64 }),
        (points, batch, most) => {
          const buffer = new SeriesBuffer(most);
          for (let at = 0; at < points.length; at += batch)
            buffer.append(columnsOf(points.slice(at, at + batch)));
          expect(buffer.length).toBeLessThanOrEqual(most);
          expect(buffer.points).toBe(points.length);
          expectSame(buffer, points);
        },
      ),
      { numRuns: 300 },
    );
  });

  test("goes on after the server's answer as if it had seen every point itself", () => {
    fc.assert(
      fc.property(
        timed,
        timed,
        fc.integer({ min: 8, max: 64 }),
        fc.constantFrom(1, 2, 4, 16),
        (before, after, most, width) => {
          const later = after.map((point) => ({ ...point, time: point.time + 10_000 }));
          const buffer = new SeriesBuffer(most);
          buffer.replace(seriesOf(before, width));
          buffer.append(columnsOf(later));
          expect(buffer.length).toBeLessThanOrEqual(most);
          expectSame(buffer, [...before, ...later]);
        },
      ),
      { numRuns: 200 },
    );
  });

  test("never holds more than 4,096 buckets", () => {
    const buffer = new SeriesBuffer();
    const points = Array.from({ length: 10_000 }, (_, at) => ({ x: at, time: at, value: at }));
    buffer.append(columnsOf(points));
    expect(buffer.length).toBeLessThanOrEqual(MAX_BUCKETS);
    expect(buffer.width).toBe(4);
    expect([buffer.min[0], buffer.max[0], buffer.mean[0], buffer.last[0]]).toEqual([0, 3, 1.5, 3]);
  });

  test("keeps a width that is less than one", () => {
    const buffer = new SeriesBuffer();
    buffer.replace({ ...seriesOf([], 1), width: 0.25 });
    buffer.append({ x: [1.3], times: [9], values: [7] });
    expect(buffer.start[0]).toBe(1.25);
  });

  test("says that it is exact until two points share a bucket", () => {
    const buffer = new SeriesBuffer();
    buffer.append({ x: [1, 2], times: [1, 2], values: [1, 2] });
    expect(buffer.exact).toBe(true);
    buffer.append({ x: [2], times: [3], values: [3] });
    expect(buffer.exact).toBe(false);
  });

  test("changes its version when it changes, and only then", () => {
    const buffer = new SeriesBuffer();
    buffer.append({ x: [], times: [], values: [] });
    expect(buffer.version).toBe(0);
    buffer.append({ x: [1], times: [1], values: [1] });
    expect(buffer.version).toBe(1);
  });

  test("refuses a size that leaves no pairs to merge", () => {
    expect(() => new SeriesBuffer(1)).toThrow("at least 2");
  });

  test("keeps a finite mean of the greatest numbers there are", () => {
    const buffer = new SeriesBuffer(2);
    const values = [1e308, -1e308, 1e308, 1e308, 1.5e308, 1.5e308];
    buffer.append({ x: values.map((_, at) => at), times: values.map((_, at) => at), values });
    expect(buffer.mean.every(Number.isFinite)).toBe(true);
  });
});

function seriesOf(points: Point[], width: number): Series {
  const buckets = rebucket(points, width);
  const column = (name: keyof (typeof buckets)[number]) =>
    Float64Array.from(buckets, (bucket) => bucket[name]);
  return {
    key: "loss",
    rank: 0,
    host: "",
    device: "",
    segment: "a",
    superseded: false,
    axis: "step",
    width,
    points: points.length,
    exact: false,
    start: column("start"),
    count: column("count"),
    min: column("min"),
    max: column("max"),
    mean: column("mean"),
    last: column("last"),
    nonfinite: column("nonfinite"),
    time: column("time"),
  };
}
