// Charts are freed when they are far from the screen, and never while they are near it.

import { expect, test, vi } from "vitest";
import { watchVisibility } from "../../src/chart/control/visibility";

type Deliver = (entries: { target: Element; isIntersecting: boolean }[]) => void;

test("a chart that was far for a moment and is near again is not freed", () => {
  const delivered: Deliver[] = [];
  vi.stubGlobal(
    "IntersectionObserver",
    class {
      constructor(callback: Deliver) {
        delivered.push(callback);
      }
      observe(): void {}
      unobserve(): void {}
    },
  );
  vi.stubGlobal("document", { activeElement: null });
  const chart = { contains: () => false } as unknown as Element;
  const near = vi.fn();
  const far = vi.fn();
  watchVisibility(chart, { near, far });
  const [whenNear, whenFar] = delivered;
  const gone = { target: chart, isIntersecting: false };
  const back = { target: chart, isIntersecting: true };

  whenNear!([gone, back]);
  whenFar!([gone, back]);
  expect(near.mock.calls).toEqual([[true]]);
  expect(far).not.toHaveBeenCalled();

  whenNear!([gone]);
  whenFar!([gone]);
  expect(near).toHaveBeenLastCalledWith(false);
  expect(far).toHaveBeenCalledOnce();
  vi.unstubAllGlobals();
});
