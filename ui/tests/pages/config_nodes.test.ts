import { describe, expect, test } from "vitest";
import { has, isLongText, isUnfolded } from "../../src/pages/config/nodes";

const list = (length: number): number[] => Array.from({ length }, (_, at) => at);

describe("a branch of a configuration", () => {
  test("is unfolded where it is short and near the top", () => {
    expect(isUnfolded({ lr: 0.1, betas: [0.9, 0.99] }, 0, "")).toBe(true);
    expect(isUnfolded({ lr: 0.1 }, 2, "")).toBe(false);
  });

  test("is folded where it is long, so that what follows stays in view", () => {
    expect(isUnfolded(list(500), 0, "")).toBe(false);
    expect(isUnfolded(list(20), 0, "")).toBe(true);
  });

  test("is unfolded for a text that is in it, however long it is", () => {
    expect(isUnfolded(list(500), 0, "499")).toBe(true);
    expect(isUnfolded(list(500), 0, "adam")).toBe(false);
    expect(has("optimizer", { name: "AdamW" }, "adam")).toBe(true);
    expect(has("optimizer", { name: "SGD" }, "adam")).toBe(false);
  });
});

test("a long text is folded, a number is not", () => {
  expect(["y".repeat(5000), "y".repeat(80), 10 ** 40, null].map(isLongText)).toEqual([true, false, false, false]);
});
