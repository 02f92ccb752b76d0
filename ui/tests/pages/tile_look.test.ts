import { expect, test } from "vitest";
import { tileLook } from "../../src/parts/words";

const tile = { state: "none", state_text: "of the whole machine", change: null } as const;

test("a figure that is not judged has no tick", () => {
  expect(tileLook(tile)).toEqual({ text: "of the whole machine", icon: null, tone: "plain" });
});

test("a judgement has its mark, also beside a change", () => {
  const change = { ratio: -0.4, text: "40 % slower" };
  expect(tileLook({ ...tile, state: "ok", state_text: "" })).toMatchObject({ text: "Good", icon: "check" });
  expect(tileLook({ state: "bad", state_text: change.text, change })).toMatchObject({ icon: "critical" });
});

test("a change that is not judged has the arrow of its direction", () => {
  expect(tileLook({ ...tile, change: { ratio: -0.1, text: "10 % slower" } }).icon).toBe("fall");
  expect(tileLook({ ...tile, change: { ratio: 0.1, text: "10 % faster" } }).icon).toBe("up");
});
