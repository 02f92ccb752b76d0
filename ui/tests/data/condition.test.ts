import { expect, test } from "vitest";
import { keyInCondition } from "../../src/data/condition";

test("a plain name is written unchanged in a condition", () => {
  const plain = ["loss", "val/loss", "gpu/temperature_celsius", "a.b/c_1", "größe"];
  expect(plain.map(keyInCondition)).toEqual(plain);
});

test("an ambiguous name is written in backquotes", () => {
  const odd = ["top-1", "top/5", "a b", "status", "lr/not", "lr/2", "x`y", ""];
  expect(odd.map(keyInCondition)).toEqual([
    ...["`top-1`", "`top/5`", "`a b`", "`status`", "`lr/not`", "`lr/2`", "`x``y`", "``"],
  ]);
});
