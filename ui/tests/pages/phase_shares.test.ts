import { expect, test } from "vitest";
import { stepSeconds } from "../../src/pages/overview/phase_shares";

const phase = (name: string, mean_s: number, share: number) => ({ phase: name, key: name, mean_s, share });

test("an average step is whole, also if only the wait for data is timed", () => {
  expect(stepSeconds([phase("data", 0.001, 0.1)])).toBeCloseTo(0.01);
  expect(stepSeconds([phase("data", 0.001, 0.1), phase("forward", 0.009, 0.9)])).toBeCloseTo(0.01);
  expect(stepSeconds([])).toBe(0);
});
