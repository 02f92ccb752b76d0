import { describe, expect, test } from "vitest";
import { ApiError } from "../../src/data/api";
import { settle, StagedBrowser, StagedTab } from "./live_stage";

async function watching(
  run: string | null = "r1",
  keys: string[] = ["loss"],
  since = "",
): Promise<StagedTab> {
  const tab = new StagedTab();
  tab.stream.subscribe(run, keys, since);
  await settle();
  return tab;
}

const points = (value: number) => ({
  run: "r1",
  series: [
    { key: "loss", rank: 0, host: "", device: "", axis: "step", steps: [1], times: [1], values: [value] },
  ],
});

describe("a live stream", () => {
  test("opens one stream for the run and keys, and is live with the first word", async () => {
    const tab = await watching();
    expect(tab.open).toBe(1);
    expect(tab.source.url.pathname).toBe("/api/v1/stream");
    expect(tab.source.url.search).toBe("?run=r1&keys=loss");
    expect(tab.stream.state).toBe("off");
    tab.source.hello();
    expect(tab.stream.state).toBe("live");
  });

  test("tells listeners what it hears until they stop listening", async () => {
    const tab = await watching();
    const heard: unknown[] = [];
    const stop = tab.stream.on("points", (data) => heard.push(data.series[0]!.values[0]));
    tab.source.hello();
    tab.source.say("points", points(3), "c2");
    stop();
    tab.source.say("points", points(4), "c3");
    expect(heard).toEqual([3]);
  });

  test("is closed while hidden and goes on from its cursor", async () => {
    const tab = await watching();
    tab.source.hello();
    tab.source.say("points", points(3), "c7");
    await tab.show(false);
    expect(tab.open).toBe(0);
    await tab.show(true);
    expect(tab.open).toBe(1);
    expect(tab.source.url.searchParams.get("since")).toBe("c7");
  });

  test("rests while paused and resumes from its cursor", async () => {
    const tab = await watching();
    tab.source.hello("c5");
    tab.stream.pause();
    expect([tab.stream.state, tab.open]).toEqual(["paused", 0]);
    await tab.show(false);
    await tab.show(true);
    expect(tab.open).toBe(0);
    tab.stream.resume();
    await settle();
    expect(tab.source.url.searchParams.get("since")).toBe("c5");
  });

  test("counts down to the next attempt when the server is gone", async () => {
    const tab = await watching();
    tab.source.hello();
    const states: string[] = [];
    tab.stream.onState((state, retryInS) => states.push(`${state} ${retryInS}`));
    tab.source.fail();
    expect(states).toEqual(["live 0", "retrying 1"]);
    await tab.pass(1000);
    expect(tab.open).toBe(1);
  });

  test("asks /delta after two streams that failed, and is live again", async () => {
    const tab = await watching("r1", ["loss"], "c3");
    const heard: unknown[] = [];
    tab.stream.on("points", (data) => heard.push(data));
    tab.source.fail();
    await tab.pass(1000);
    tab.source.fail();
    await settle();
    expect(tab.open).toBe(0);
    expect(tab.questions[0]!.query).toMatchObject({ run: "r1", keys: "loss", since: "c3" });
    tab.questions[0]!.answer({ cursor: "c4", events: [{ event: "points", data: points(1) }] });
    await settle();
    expect(tab.stream.state).toBe("live");
    expect(heard).toHaveLength(1);
    expect(tab.questions[1]!.query.since).toBe("c4");
  });

  test("tries a stream again after two minutes of asking", async () => {
    const tab = await watching();
    tab.source.fail();
    await tab.pass(1000);
    tab.source.fail();
    await tab.pass(119_000);
    expect(tab.sources).toHaveLength(2);
    await tab.pass(2000);
    expect(tab.sources).toHaveLength(3);
  });

  test("takes a stream that opens and stays silent for a failed one", async () => {
    const tab = await watching();
    await tab.pass(8000);
    expect(tab.stream.state).toBe("retrying");
    await tab.pass(1000 + 8000);
    expect(tab.questions).toHaveLength(1);
  });

  test("waits longer each time the server does not answer", async () => {
    const tab = await watching();
    tab.source.fail();
    await tab.pass(1000);
    tab.source.fail();
    await settle();
    tab.questions[0]!.refuse(new ApiError(0, "The server does not answer."));
    await settle();
    expect([tab.stream.state, tab.stream.retryInS]).toEqual(["retrying", 2]);
    await tab.pass(2000);
    tab.questions[1]!.refuse(new ApiError(0, "The server does not answer."));
    await settle();
    expect(tab.stream.retryInS).toBe(4);
    tab.stream.retryNow();
    expect(tab.questions).toHaveLength(3);
  });

  test("tries at once when another request was answered, however long the countdown", async () => {
    const tab = await watching();
    tab.answered();
    expect(tab.sources).toHaveLength(1);
    tab.source.fail();
    tab.answered();
    expect([tab.open, tab.stream.retryInS]).toEqual([1, 0]);
    tab.source.hello();
    expect(tab.stream.state).toBe("live");
  });

  test("gives up where it is not allowed, and says why", async () => {
    const tab = await watching();
    tab.source.fail();
    await tab.pass(1000);
    tab.source.fail();
    await settle();
    tab.questions[0]!.refuse(new ApiError(401, "A token is needed."));
    await settle();
    expect([tab.stream.state, tab.stream.problem]).toEqual(["off", "A token is needed."]);
  });

  test("opens again with the keys of all visible charts, from the previous cursor", async () => {
    const tab = await watching("r1", [], "c1");
    tab.source.hello("c1");
    tab.stream.want("r1", ["loss"]);
    tab.source.say("run", {}, "c2");
    tab.stream.want("r1", ["step_seconds"]);
    await tab.pass(100);
    expect(tab.open).toBe(1);
    expect(tab.source.url.searchParams.get("keys")).toBe("loss,step_seconds");
    expect(tab.source.url.searchParams.get("since")).toBe("c1");
  });

  test("stays open when a chart is removed or needs no new keys", async () => {
    const tab = await watching("r1", ["loss"]);
    const release = tab.stream.want("r1", ["loss"]);
    release();
    release();
    await tab.pass(1000);
    expect(tab.sources).toHaveLength(1);
  });

  test("of another run replaces the one before", async () => {
    const tab = await watching("r1", ["loss"], "c1");
    tab.stream.subscribe(null, []);
    await settle();
    expect(tab.open).toBe(1);
    expect(tab.source.url.search).toBe("");
  });

  test("is off when it is closed", async () => {
    const tab = await watching();
    tab.source.hello();
    tab.stream.close();
    expect([tab.stream.state, tab.open]).toEqual(["off", 0]);
  });
});

describe("tabs that watch the same run", () => {
  async function twoTabs(): Promise<[StagedTab, StagedTab]> {
    const browser = new StagedBrowser();
    const tabs: [StagedTab, StagedTab] = [new StagedTab(browser), new StagedTab(browser)];
    tabs[0].stream.subscribe("r1", ["loss"]);
    await settle();
    tabs[0].source.hello("c1");
    tabs[1].stream.subscribe("r1", ["step_seconds"]);
    await settle();
    await tabs[0].pass(100);
    return tabs;
  }

  test("share one stream that has the keys of both", async () => {
    const [leader, follower] = await twoTabs();
    expect([leader.open, follower.open]).toEqual([1, 0]);
    expect(leader.source.url.searchParams.get("keys")).toBe("loss,step_seconds");
    const heard: unknown[] = [];
    follower.stream.on("points", (data) => heard.push(data.series[0]!.values[0]));
    leader.source.hello("c1");
    leader.source.say("points", points(9), "c2");
    expect(heard).toEqual([9]);
    expect(follower.stream.state).toBe("live");
  });

  test("hand the stream on when the one that leads is hidden, without a gap", async () => {
    const [leader, follower] = await twoTabs();
    leader.source.hello("c1");
    leader.source.say("points", points(9), "c2");
    await leader.show(false);
    expect([leader.open, follower.open]).toEqual([0, 1]);
    expect(follower.source.url.searchParams.get("since")).toBe("c2");
  });

  test("catch up with what they missed while hidden, before newer points arrive", async () => {
    const [leader, follower] = await twoTabs();
    leader.source.hello("c1");
    leader.source.say("points", points(1), "c2");
    await follower.show(false);
    leader.source.say("points", points(2), "c3");
    await follower.show(true);
    const heard: unknown[] = [];
    follower.stream.on("points", (data) => heard.push(data.series[0]!.values[0]));
    leader.source.say("points", points(3), "c4");
    expect(follower.questions[0]!.query.since).toBe("c2");
    follower.questions[0]!.answer({ cursor: "c3", events: [{ event: "points", data: points(2) }] });
    await settle();
    expect(heard).toEqual([2, 3]);
  });

  test("ask for everything again when they cannot catch up", async () => {
    const [leader, follower] = await twoTabs();
    leader.source.hello("c1");
    await follower.show(false);
    await follower.show(true);
    let resynced = false;
    follower.stream.on("resync", () => (resynced = true));
    follower.questions[0]!.refuse(new ApiError(500, "Broken."));
    await settle();
    expect(resynced).toBe(true);
  });

  test("try at once when a request of any of them was answered", async () => {
    const [leader, follower] = await twoTabs();
    leader.source.fail();
    expect([leader.open, follower.stream.state]).toEqual([0, "retrying"]);
    follower.answered();
    expect(leader.open).toBe(1);
  });

  test("do not share a stream with those that watch another run", async () => {
    const browser = new StagedBrowser();
    const [one, other] = [new StagedTab(browser), new StagedTab(browser)];
    one.stream.subscribe("r1", []);
    other.stream.subscribe("r2", []);
    await settle();
    expect([one.open, other.open]).toEqual([1, 1]);
  });
});
