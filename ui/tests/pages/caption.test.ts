import { expect, test } from "vitest";
import { captionOf } from "../../src/pages/alerts/caption";

test("the caption of an alert has value and limit, and no expression in the place of a unit", () => {
  const computed = { key: "loss", quantity: "nonfinite(loss, 20 points)", value: 20, threshold: 0 };
  expect(captionOf(computed)).toBe("value 20 · limit 0");
  expect(captionOf({ ...computed, value: 4.35e21, threshold: null })).toBe("value 4.35e21");
  const read = { key: "gpu/temperature_celsius", quantity: "", value: 91, threshold: 85 };
  expect(captionOf(read)).toBe("value 91 °C · limit 85 °C");
});
