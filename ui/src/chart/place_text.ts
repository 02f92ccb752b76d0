// Formats a position along x.

import { axisTitle } from "../data/axis";
import type { AxisName } from "../data/types";
import { clock, count, duration, number } from "../format";

/** The position of a bucket, for a tooltip. */
export function placeText(axis: AxisName, x: number, width: number): string {
  switch (axis) {
    case "step":
      return width > 1 ? `Steps ${count(x)}–${count(x + width - 1)}` : `Step ${count(x)}`;
    case "wall":
      return clock(x);
    case "active":
    case "process":
      return `${duration(x)} in`;
    case "epoch":
      return `Epoch ${number(x)}`;
    default:
      return `${count(x)} ${axisTitle(axis).toLowerCase()}`;
  }
}
