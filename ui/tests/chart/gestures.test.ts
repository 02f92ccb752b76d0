// Gestures over a plot that has moved on the page.
import { expect, test, vi } from "vitest";
import { Gestures, type GestureTarget } from "../../src/chart/control/gestures";

function mouse(type: string, clientX: number, clientY: number): Event {
  return Object.assign(new Event(type, { cancelable: true }), { clientX, clientY, pointerType: "mouse" });
}

test("a right click pins the place under the pointer though the plot has moved without a scroll", () => {
  vi.stubGlobal("addEventListener", () => undefined);
  const plot = { top: 100 };
  const over = {
    getBoundingClientRect: () => ({ left: 0, top: plot.top, width: 400, height: 200 }),
  } as HTMLElement;
  const target = { hover: vi.fn(), pin: vi.fn() } as unknown as GestureTarget;
  const root = new EventTarget();
  new Gestures(root as HTMLElement, over, target);
  root.dispatchEvent(mouse("pointermove", 50, 150));
  plot.top = 400; // a form above it was opened
  root.dispatchEvent(mouse("contextmenu", 50, 450));
  expect(target.pin).toHaveBeenCalledWith({ x: 50, y: 50 });
});
