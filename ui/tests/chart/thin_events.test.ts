import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { MIN_APART, thinned } from "../../src/chart/timeline/thin_events";

describe("lines of epochs", () => {
  test("stand apart, however many there are and wherever they lie", () => {
    fc.assert(
      fc.property(fc.array(fc.double({ min: -500, max: 1500, noNaN: true }), { maxLength: 300 }), (places) => {
        const sorted = [...places].sort((one, other) => one - other);
        const kept = thinned(sorted, (place) => place, 1000);
        for (let at = 1; at < kept.length; at += 1)
          expect(kept[at]! - kept[at - 1]!).toBeGreaterThan(MIN_APART * 0.98);
        for (const place of kept) expect(place >= 0 && place <= 1000).toBe(true);
      }),
    );
  });

  test("are all there where there is room", () => {
    const places = [0, 100, 200, 300];
    expect(thinned(places, (place) => place, 1000)).toEqual(places);
  });

  test("are every second, fifth or tenth where there is little", () => {
    const every = (distance: number) =>
      thinned(
        Array.from({ length: 100 }, (_, at) => at + 1),
        (epoch) => epoch * distance,
        10_000,
      ).slice(0, 2);
    expect([every(24), every(13), every(6), every(2.5)]).toEqual([[1, 2], [2, 4], [5, 10], [10, 20]]);
  });
});
