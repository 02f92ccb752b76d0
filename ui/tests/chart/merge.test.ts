import { describe, expect, test } from "vitest";
import { distinct, mergedWith, ofKey, whyNotMerged, type Mergeable } from "../../src/chart/series/merge";
import { ChartSync } from "../../src/chart/control/sync";

const chart = (key: string, unit = "", more: Partial<Mergeable> = {}) => ofKey(key, unit, more);

describe("merged charts", () => {
  test("share an axis where they share a unit", () => {
    const merged = mergedWith(chart("loss"), [chart("val/loss")]);
    expect([merged.keys, merged.secondAxis, merged.secondUnit]).toEqual([["loss", "val/loss"], [], null]);
  });

  test("have a second axis for another unit", () => {
    const merged = mergedWith(chart("loss"), [chart("step_seconds", "seconds"), chart("val/loss")]);
    expect(merged.keys).toEqual(["loss", "step_seconds", "val/loss"]);
    expect([merged.secondAxis, merged.secondUnit]).toEqual([["step_seconds"], "seconds"]);
  });

  test("never have a third unit, nor the same line twice", () => {
    const both = mergedWith(chart("loss"), [chart("step_seconds", "seconds")]);
    expect(whyNotMerged(both, chart("gpu/power_watts", "watts"))).toBe("would be a third unit");
    expect(whyNotMerged(both, chart("phase/data_seconds", "seconds"))).toBeNull();
    expect(whyNotMerged(both, chart("loss"))).toBe("already shown");
    const two = chart("a", "watts", { keys: ["a", "b"], secondAxis: ["b"], secondUnit: "celsius" });
    expect(whyNotMerged(chart("loss"), two)).toBe("would be a third unit");
    expect(whyNotMerged(chart("x", "celsius"), two)).toBeNull();
    expect(mergedWith(chart("x", "celsius"), [two]).secondAxis).toEqual(["a"]);
    expect(mergedWith(chart("loss"), [chart("loss")]).keys).toEqual(["loss"]);
  });

  test("tell lines apart as the chart did that they are from", () => {
    const devices = chart("gpu/power_watts", "watts", { per: "device", noSmoothing: ["gpu/power_watts"] });
    const merged = mergedWith(chart("loss"), [devices]);
    expect([merged.per, merged.perKey]).toEqual(["none", { "gpu/power_watts": "device" }]);
    expect(merged.noSmoothing).toEqual(["gpu/power_watts"]);
  });

  test("are chosen from all charts of a page, each once, while they are there", () => {
    const sync = new ChartSync();
    const stop = sync.offer([chart("loss"), chart("accuracy")]);
    sync.offer([chart("loss")]);
    expect(distinct(sync.offered).map((one) => one.title)).toEqual(["loss", "accuracy"]);
    stop();
    expect(distinct(sync.offered).map((one) => one.title)).toEqual(["loss"]);
  });
});
