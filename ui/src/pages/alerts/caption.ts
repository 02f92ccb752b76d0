import type { AlertRow } from "../../data";
import { quantity, unitOf } from "../../format";

/** The value of an alert and its limit. A value that was computed, as a count in a window, has no unit. */
export function captionOf(alert: Pick<AlertRow, "key" | "quantity" | "value" | "threshold">): string {
  const unit = alert.quantity ? "" : unitOf(alert.key);
  const limit = alert.threshold === null ? "" : ` · limit ${quantity(alert.threshold, unit)}`;
  return `value ${quantity(alert.value, unit)}${limit}`;
}
