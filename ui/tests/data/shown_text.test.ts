import { expect, test } from "vitest";
import { parseShown } from "../../src/data/shown_text";

const TEXT = "safe \u202eabc\u2066";

test.each([JSON.stringify, asciiOnly])("characters that reorder text are shown as what they are", (write) => {
  const row = { id: "r1", name: TEXT, reason: TEXT, project: "p" };
  expect(parseShown(write({ runs: [row] }))).toEqual({
    runs: [{ ...row, name: "safe \\u202eabc\\u2066", reason: "safe \\u202eabc\\u2066" }],
  });
});

test("what goes back to the server stays as it came", () => {
  const rule = { name: TEXT, key: TEXT, keys: [TEXT] };
  expect(parseShown(asciiOnly(rule))).toEqual(rule);
});

test("text from right to left stays as it was written", () => {
  const row = { id: "r1", name: "مرحبا بالعالم" };
  expect(parseShown(asciiOnly(row))).toEqual(row);
});

/** As the server writes it. */
function asciiOnly(value: unknown): string {
  return JSON.stringify(value).replace(
    /[\u0080-\uffff]/g,
    (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}
