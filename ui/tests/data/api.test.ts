import { afterEach, expect, test, vi } from "vitest";
import { api, onAnswer } from "../../src/data/api";

afterEach(() => {
  onAnswer(() => undefined);
  vi.unstubAllGlobals();
});

test.each([
  [200, 1],
  [404, 1],
  [502, 0],
])("an answer with status %d counts as %d from the server", async (status, expected) => {
  let answers = 0;
  onAnswer(() => (answers += 1));
  vi.stubGlobal("fetch", () => Promise.resolve(new Response("{}", { status })));
  await api.get("meta").catch(() => undefined);
  expect(answers).toBe(expected);
});
