import { expect, test } from "vitest";
import { tileStyle } from "../../src/parts/words";

const tile = { state: "none", state_text: "of the whole machine", change: null } as const;

test("a figure that is not judged has no tick", () => {
  expect(tileStyle(tile)).toEqual({ text: "of the whole machine", icon: null, tone: "plain" });
});

test("a judgement has its mark, also beside a change", () => {
  const change = { ratio: -0.4, text: "40% slower" };
  expect(tileStyle({ ...tile, state: "ok", state_text: "" })).toMatchObject({ text: "Good", icon: "check" });
  expect(tileStyle({ state: "bad", state_text: change.text, change })).toMatchObject({ icon: "critical" });
});

test("a change that is not judged has the arrow of its direction", () => {
  expect(tileStyle({ ...tile, change: { ratio: -0.1, text: "10% slower" } }).icon).toBe("fall");
  expect(tileStyle({ ...tile, change: { ratio: 0.1, text: "10% faster" } }).icon).toBe("up");
});
