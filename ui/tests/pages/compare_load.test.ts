import { describe, expect, test } from "vitest";
import { ApiError, type api } from "../../src/data";
import { loadComparison } from "../../src/pages/compare/load";

const STORE = ["a", "b"];

/** A server with two runs; what it was asked is kept. */
function server() {
  const asked: [string, unknown][] = [];
  const get = async (path: string, query: Record<string, unknown> = {}): Promise<unknown> => {
    asked.push([path, query]);
    const ids = path === "compare" ? String(query.runs).split(",") : [path.slice("runs/".length)];
    const missing = ids.find((id) => !STORE.includes(decodeURIComponent(id)));
    if (missing) throw new ApiError(404, `no ${missing}`);
    return { runs: ids.map((id) => ({ id })), baseline: query.baseline };
  };
  return { asked, get: get as typeof api.get };
}

const question = (ids: string[]) => ({ ids, baseline: ids[0], group: "", warmUp: "excluded" });

describe("a comparison", () => {
  test("of known runs is one request", async () => {
    const { asked, get } = server();
    expect(await loadComparison(question(["a", "b"]), get)).toMatchObject({ baseline: "a", unknown: [] });
    expect(asked).toHaveLength(1);
  });

  test("shows the runs that are there, and names those that are not", async () => {
    const { get } = server();
    const comparison = await loadComparison(question(["gone/1", "a", "b"]), get);
    expect(comparison.runs.map(({ id }) => id)).toEqual(["a", "b"]);
    expect(comparison.unknown).toEqual(["gone/1"]);
    expect(comparison.baseline).toBe("a");
  });

  test("of none that is there, and of a server in trouble, fails", async () => {
    await expect(loadComparison(question(["x", "y"]), server().get)).rejects.toThrow("no x");
    const broken = (() => Promise.reject(new ApiError(500, "broken"))) as typeof api.get;
    await expect(loadComparison(question(["a", "b"]), broken)).rejects.toThrow("broken");
  });
});
