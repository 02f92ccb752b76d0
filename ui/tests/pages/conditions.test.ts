import { describe, expect, test } from "vitest";
import type { KeyRow } from "../../src/data";
import { marked, proposals, standing, timeWords, channelText, ruleText, wordAt } from "../../src/pages/alerts/conditions";

const key = (name: string, help = ""): KeyRow =>
  ({ key: name, help, last: 1.5, group: "", unit: "", axis: "step", points: 1, places: [] }) as unknown as KeyRow;
const KEYS = [key("val/loss"), key("loss", "What is minimised."), key("top-1"), key("gpu/power_watts")];
const NOW = {
  ...{ run_id: "r-1", run: "r", live: true, is_true: false, subjects: 1, true: 0, key: "loss" },
  ...{ value: 1.93, threshold: 2.5, rank: 0, device: "" },
};

describe("a word of a condition", () => {
  test.each([
    ["lo", 2, "lo"],
    ["loss > 2 and va", 15, "va"],
    ["loss > 2 and va", 4, "loss"],
    ["median(val/lo", 13, "val/lo"],
    ["loss > 2", 8, ""],
    ["`top-", 5, "`top-"],
    ["`top-1` > lo", 12, "lo"],
    ["`top-1` ", 8, ""],
    ["", 0, ""],
  ])("%j at %d is %j", (text, cursor, typed) => {
    expect(wordAt(text, cursor)).toEqual({ begin: cursor - typed.length, typed });
  });

  test("is completed by metrics that begin with it, then by others, then by functions", () => {
    expect(proposals("lo", KEYS).map((one) => one.text)).toEqual(["loss", "val/loss"]);
    expect(proposals("me", KEYS).map((one) => one.text)).toEqual(["mean(", "median("]);
    expect(proposals("lo", KEYS)[0]!.about).toBe("What is minimised.");
    expect(proposals("", KEYS)).toEqual([]);
    expect(proposals("loss", KEYS).map((one) => one.text)).toEqual(["val/loss"]);
  });

  test("is completed in backquotes where a name needs them", () => {
    expect(proposals("`to", KEYS).map((one) => one.text)).toEqual(["`top-1`"]);
    expect(proposals("to", KEYS).map((one) => one.text)).toEqual(["`top-1`"]);
  });
});

describe("an error in a condition", () => {
  test("is marked by characters, not by UTF-16 units", () => {
    const text = "`🚀` > nope(x)";
    expect(marked(text, { message: "", begin: 6, end: 10 })).toEqual({ before: "`🚀` > ", wrong: "nope" });
  });

  test("is marked at the last character where something is missing", () => {
    expect(marked("loss >", { message: "", begin: 6, end: 7 })).toEqual({ before: "loss ", wrong: ">" });
    expect(marked("", { message: "", begin: 0, end: 1 })).toEqual({ before: "", wrong: "" });
    expect(marked("loss", null)).toEqual({ before: "", wrong: "" });
  });
});

describe("a rule in words", () => {
  test("says when it fires, and where", () => {
    expect(ruleText({ when: "loss > 2.5", for: "60s" })).toBe("Fires when loss > 2.5 holds for 60 s");
    expect(ruleText({ when: "loss > 2.5", run: "r-1" })).toBe("Fires when loss > 2.5 is true in this run");
    expect(ruleText({ when: " a > 1 ", for: "100 steps", project: "vision" })).toBe(
      "Fires when a > 1 holds for 100 steps in runs of vision",
    );
  });

  test("says whether it is true", () => {
    expect(standing(NOW, ["loss"])).toBe("now: 1.93, not true");
    expect(standing({ ...NOW, is_true: true, subjects: 8, true: 3 }, ["loss"])).toBe("now: 1.93, true for 3 of 8");
    expect(standing(NOW, ["loss", "lr"])).toBe("now: loss 1.93, not true");
    expect(standing({ ...NOW, is_true: null, value: null }, ["loss"])).toBe("now: unknown");
    expect(standing({ ...NOW, live: false }, ["loss"])).toBe("at the end of r: 1.93, not true");
  });

  test("says who hears of it", () => {
    expect(channelText(null)).toBe("Sent to all channels.");
    expect(channelText(["slack"])).toBe("Sent to slack.");
    expect(channelText([])).toBe("Not sent; the alert is recorded and shown.");
  });

  test.each([
    ["60s", "60 s"],
    ["2m", "2 min"],
    ["90", "90 s"],
    ["1.5h", "1.5 h"],
    ["soon", "soon"],
  ])("writes the time %s as %s", (text, words) => {
    expect(timeWords(text)).toBe(words);
  });
});
