import { describe, expect, test } from "vitest";
import type { ChartSpec } from "../../src/data/types";
import { pinnedIn, withToggled } from "../../src/pages/run/pinned";

const spec = (key: string): ChartSpec => ({
  title: key,
  keys: [key],
  unit: "",
  kind: "line",
  second_axis: [],
  from_zero: false,
  percent: false,
  per: "none",
});

describe("pinned charts", () => {
  test("are kept for each project apart, in the order they were pinned", () => {
    let kept = withToggled({}, "vision", spec("loss"));
    kept = withToggled(kept, "speech", spec("wer"));
    kept = withToggled(kept, "vision", spec("accuracy"));
    expect(pinnedIn(kept, "vision").map((one) => one.title)).toEqual(["loss", "accuracy"]);
    expect(pinnedIn(kept, "speech").map((one) => one.title)).toEqual(["wer"]);
    expect(pinnedIn(kept, "text")).toEqual([]);
  });

  test("are taken off by the same again", () => {
    const kept = withToggled(withToggled({}, "vision", spec("loss")), "vision", spec("accuracy"));
    expect(pinnedIn(withToggled(kept, "vision", spec("loss")), "vision")).toEqual([spec("accuracy")]);
  });

  test("are left out where what was kept is no chart", () => {
    const odd = [null, "loss", {}, { ...spec("loss"), keys: "loss" }, { ...spec("loss"), kind: "pie" }];
    expect(pinnedIn({ vision: [...odd, spec("loss")] }, "vision")).toEqual([spec("loss")]);
    expect(pinnedIn({ vision: { loss: 1 } }, "vision")).toEqual([]);
  });

  test("of a project with a strange name are its own", () => {
    expect(pinnedIn({}, "__proto__")).toEqual([]);
    expect(pinnedIn(withToggled({}, "__proto__", spec("loss")), "__proto__")).toEqual([spec("loss")]);
  });
});
