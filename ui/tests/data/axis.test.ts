import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { axisMap, interpolate, StepClock, storedAxis, whyNot } from "../../src/data/axis";
import type { Segment } from "../../src/data/types";
import { bucketsOf } from "../synthetic";

const segment = (id: string, started: number, ended: number | null): Segment => ({
  id,
  started,
  ended,
  status: "finished",
  reason: "",
  first_step: null,
  last_step: null,
});
const RESUMED = [segment("b", 1500, null), segment("a", 1000, 1100)];

describe("an x axis", () => {
  test("of active time leaves the downtime between segments out", () => {
    const map = axisMap("active", RESUMED, null);
    expect(map.toX(999.5)).toBe(0); // a bucket begins before the process did
    expect(map.toX(1000)).toBe(0);
    expect(map.toX(1090)).toBe(90);
    expect(map.toX(1300)).toBe(100);
    expect(map.toX(1500)).toBe(100);
    expect(map.toX(1510)).toBe(110);
  });

  test("of active time finds its way back", () => {
    const map = axisMap("active", RESUMED, null);
    fc.assert(
      fc.property(fc.double({ min: 0, max: 500, noNaN: true }), (x) => {
        expect(map.toX(map.toStored(x)!)).toBeCloseTo(x, 6);
      }),
    );
  });

  test("of a process starts again with each segment, and says that a place in it is ambiguous", () => {
    const map = axisMap("process", RESUMED, null);
    expect(map.toX(1510, "b")).toBe(10);
    expect(map.toX(1010)).toBe(10);
    expect(map.toStored(10)).toBeNull();
    expect(axisMap("process", [RESUMED[1]!], null).toStored(10)).toBe(1010);
  });

  test("of samples is mapped through the series that counts them, and goes on at its pace", () => {
    const map = axisMap("samples", [], bucketsOf("samples_total", [0, 10, 20], [0, 320, 640]));
    expect(map.toX(5)).toBe(160);
    expect(map.toX(30)).toBe(960);
    expect(map.toStored(160)).toBe(5);
  });

  test("never goes back where a counter starts again after a resume", () => {
    const map = axisMap("epoch", [], bucketsOf("epoch", [0, 10, 20, 30], [0, 3, 1, 4]));
    expect(map.toX(20)).toBe(3);
    expect(map.toX(30)).toBe(4);
  });

  test("asks the server by step or by time", () => {
    expect(storedAxis("tokens")).toBe("step");
    expect(storedAxis("active")).toBe("seconds");
  });

  test("that cannot be used says why", () => {
    const axes = [{ name: "tokens" as const, key: null, why_not: "Nothing counts tokens." }];
    expect(whyNot(axes, "tokens")).toBe("Nothing counts tokens.");
    expect(whyNot(axes, "epoch")).toContain("no axis of epoch");
    expect(whyNot([], "step")).toBeNull();
  });
});

describe("the clock of steps", () => {
  test("knows when a step was and which step a time belongs to", () => {
    const clock = new StepClock();
    expect(clock.stepAt(100)).toBeNull();
    clock.learn(bucketsOf("loss", [0, 10, 20], [1, 1, 1], [100, 200, 300]));
    expect(clock.stepAt(250)).toBe(15);
    expect(clock.timeAt(15)).toBe(250);
  });

  test("guesses no step after the last one", () => {
    const clock = new StepClock();
    clock.learn(bucketsOf("loss", [0, 10, 20], [1, 1, 1], [100, 200, 300]));
    expect([0, 400, 40_000].map((time) => clock.stepAt(time))).toEqual([0, 20, 20]);
  });

  test("goes on with live points and stays bounded", () => {
    const clock = new StepClock();
    clock.learn(bucketsOf("loss", [0, 10, 20], [1, 1, 1], [100, 200, 300]));
    clock.follow([15, 30], [250, 400]);
    expect([250, 350, 500].map((time) => clock.stepAt(time))).toEqual([15, 25, 30]);
    const steps = Array.from({ length: 20_000 }, (_, at) => 31 + at);
    for (const step of steps) clock.follow([step], [370 + step]);
    expect(clock.stepAt(1e9)).toBe(20_030);
    expect(clock.stepAt(370 + 15_000)).toBe(15_000);
  });

  test("keeps the longer of two tables", () => {
    const clock = new StepClock();
    clock.learn(bucketsOf("loss", [0, 10, 20], [1, 1, 1], [100, 200, 300]));
    clock.learn(bucketsOf("eval", [0, 20], [1, 1], [0, 10]));
    expect(clock.timeAt(20)).toBe(300);
  });
});

test("a line between points passes through them", () => {
  expect([0, 5, 10, 15].map((x) => interpolate([0, 10], [0, 100], x))).toEqual([0, 50, 100, 150]);
});
