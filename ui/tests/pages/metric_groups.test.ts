import { describe, expect, test } from "vitest";
import type { KeyRow } from "../../src/data";
import { groupsOf } from "../../src/pages/metrics/groups";

const infos = (...keys: string[]): KeyRow[] =>
  keys.map((key) => ({ key, group: key.split("/").slice(0, -1).join("/") }) as KeyRow);

const grouped = (keys: KeyRow[], filter = ""): Record<string, string[]> =>
  Object.fromEntries(groupsOf(keys, filter).map(({ name, keys }) => [name, keys.map(({ key }) => key)]));

describe("groups of metrics", () => {
  test("are prefixes; what was measured unasked comes last", () => {
    const keys = infos("loss", "phase/data", "phase/forward", "val/loss", "val/accuracy");
    expect(grouped(keys)).toEqual({
      training: ["loss"],
      val: ["val/accuracy", "val/loss"],
      phase: ["phase/data", "phase/forward"],
    });
    expect(groupsOf(keys, "").map(({ name, isOwn }) => [name, isOwn])).toEqual([
      ["training", false],
      ["val", false],
      ["phase", true],
    ]);
  });

  test("of one chart are joined into their parent, so that charts fill a row", () => {
    const keys = Array.from({ length: 2000 }, (_, at) => `layer${Math.floor(at / 20)}/block${at % 20}/norm`);
    const groups = groupsOf(infos(...keys), "");
    expect(groups).toHaveLength(100);
    expect(groups.every(({ keys }) => keys.length === 20)).toBe(true);
    expect(groups[2]!.name).toBe("layer2");
    expect(groups[2]!.keys[10]!.key).toBe("layer2/block10/norm");
  });

  test("are joined up to the top where no parent has a second chart", () => {
    expect(grouped(infos("loss", "a/b/c/d", "val/loss"))).toEqual({
      training: ["a/b/c/d", "loss", "val/loss"],
    });
    expect(grouped(infos("a/b/c", "a/d"))).toEqual({ a: ["a/b/c", "a/d"] });
    expect(grouped(infos("loss", "gc/pauses", "gradients/fc/norm"))).toEqual({
      training: ["loss"],
      gc: ["gc/pauses"],
      gradients: ["gradients/fc/norm"],
    });
  });

  test("do not change with the filter", () => {
    const keys = infos("loss", "val/loss", "val/accuracy");
    expect(grouped(keys, "val acc")).toEqual({ val: ["val/accuracy"] });
  });
});
