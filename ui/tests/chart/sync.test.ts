import { afterEach, describe, expect, test, vi } from "vitest";
import { ChartSync, type SyncState } from "../../src/chart/control/sync";
import { SERIES_COLUMNS } from "../../src/data/types";
import { bucketsOf, encode } from "../synthetic";

function sync(state: Partial<SyncState> = {}): ChartSync {
  return new ChartSync({ state });
}

describe("what charts share", () => {
  test("notifies at once and after each change, until the listener is removed", () => {
    const shared = sync();
    const heard: boolean[] = [];
    const stop = shared.subscribe((state) => heard.push(state.band));
    shared.set({ band: false });
    stop();
    shared.set({ band: true });
    expect(heard).toEqual([true, false]);
  });

  test("follows the newest data until a zoom, and again after a reset", () => {
    const shared = sync();
    shared.zoom({ from: 10, to: 20 });
    expect(shared.state).toMatchObject({ range: { from: 10, to: 20 }, follow: false });
    shared.followLive();
    expect(shared.state).toMatchObject({ range: null, follow: true });
  });

  test("takes a window without width for no window", () => {
    const shared = sync();
    shared.zoom({ from: 20, to: 20 });
    expect(shared.state.range).toBeNull();
  });

  test("reaches from the first to the last x of all charts, and less when one goes", () => {
    const shared = sync();
    shared.reach("one", { from: 5, to: 10 });
    shared.reach("other", { from: 0, to: 7 });
    expect(shared.window).toEqual({ from: 0, to: 10 });
    shared.reach("other", null);
    expect(shared.window).toEqual({ from: 5, to: 10 });
  });

  test("tells charts only when the reach really changes", () => {
    const shared = sync();
    shared.reach("one", { from: 0, to: 10 });
    let told = -1;
    shared.subscribe(() => (told += 1));
    shared.reach("other", { from: 2, to: 8 });
    expect(told).toBe(0);
    shared.reach("other", { from: 2, to: 12 });
    expect(told).toBe(1);
  });

  test("zooms around a place, and out of everything back to everything", () => {
    const shared = sync();
    shared.reach("one", { from: 0, to: 100 });
    shared.zoomBy(0.5, 20);
    expect(shared.state.range).toEqual({ from: 10, to: 60 });
    shared.panBy(5);
    expect(shared.state.range).toEqual({ from: 15, to: 65 });
    shared.zoomBy(4);
    expect(shared.state.range).toBeNull();
  });

  test("shows everything again on another axis", () => {
    const shared = sync({ range: { from: 1, to: 2 } });
    shared.set({ axis: "wall" });
    expect(shared.state.range).toBeNull();
    expect(shared.storedAxis).toBe("seconds");
  });

  test("moves the crosshair of all charts once per frame", () => {
    const frames: (() => void)[] = [];
    const shared = new ChartSync({}, (call) => frames.push(call));
    const heard: unknown[] = [];
    shared.onCrosshair((x, source) => heard.push([x, source]));
    shared.setCrosshair(1, "a");
    shared.setCrosshair(2, "b");
    expect(heard).toEqual([]);
    for (const frame of frames.splice(0)) frame();
    expect(heard).toEqual([[2, "b"]]);
    expect(frames).toHaveLength(0);
  });

  test("knows the step and time at a position", () => {
    const shared = sync();
    shared.clock.learn(bucketsOf("loss", [0, 10], [1, 1], [100, 200]));
    expect(shared.spotAt(5.2, "r")).toEqual({ step: 5, time: 152 });
    shared.set({ axis: "wall" });
    expect(shared.spotAt(150, "r")).toEqual({ step: 5, time: 150 });
    expect(shared.xOf({ step: 5, time: null }, "r")).toBe(150);
  });

  test("cannot place a moment without a step while nothing says when steps were", () => {
    expect(sync().xOf({ step: null, time: 150 }, "r")).toBeNull();
  });
});

describe("an axis that is mapped through a series", () => {
  afterEach(() => vi.unstubAllGlobals());

  test("says why it cannot be chosen", () => {
    const shared = new ChartSync({
      axes: [{ name: "tokens", key: null, why_not: "Nothing counts tokens." }],
    });
    expect(shared.whyNot("tokens")).toBe("Nothing counts tokens.");
  });

  test("is loaded once for each run, and only when it is chosen", async () => {
    const asked: string[] = [];
    vi.stubGlobal("fetch", async (url: string) => {
      asked.push(new URL(url).searchParams.get("keys")!);
      const column = [0, 10];
      return new Response(
        encode([
          {
            key: "samples_total",
            columns: SERIES_COLUMNS.map((name) => (name === "last" ? [0, 320] : column)),
          },
        ]),
      );
    });
    const shared = new ChartSync({ axes: [{ name: "samples", key: "samples_total", why_not: null }] });
    await shared.prepare("r");
    expect(asked).toEqual([]);
    shared.set({ axis: "samples" });
    await shared.prepare("r");
    await shared.prepare("r");
    expect(asked).toEqual(["samples_total"]);
    expect(shared.mapOf("r").toX(5)).toBe(160);
  });
});
