import { afterEach, describe, expect, test, vi } from "vitest";
import { api, ApiError, apiUrl } from "../../src/data/api";
import { decodeSeries, fetchSeries } from "../../src/data/series";
import { SERIES_COLUMNS } from "../../src/data/types";
import { encode } from "../synthetic";

const COLUMNS = SERIES_COLUMNS.map((_, at) => [at, at + 0.5]);

describe("a binary answer", () => {
  test("is decoded into columns without copying them", () => {
    const { series, cursor, missing } = decodeSeries(
      encode([
        { key: "verlust/ä", columns: COLUMNS },
        { key: "b", columns: COLUMNS.map(() => []) },
      ]),
    );
    expect([cursor, missing]).toEqual(["c9", ["gone"]]);
    expect(series[0]).toMatchObject({ key: "verlust/ä", rank: 1, width: 4, points: 7, axis: "step" });
    expect([...series[0]!.start]).toEqual([0, 0.5]);
    expect([...series[0]!.time]).toEqual([7, 7.5]);
    expect(series[1]!.start.length).toBe(0);
  });

  test("that is torn says so instead of drawing half of it", () => {
    const body = encode([{ key: "a", columns: COLUMNS }]);
    expect(() => decodeSeries(body.slice(0, body.byteLength - 8))).toThrow("ends within a, column time");
    expect(() => decodeSeries(body.slice(0, 20))).toThrow("torn");
    expect(() => decodeSeries(new ArrayBuffer(2))).toThrow("torn");
  });
});

describe("the API", () => {
  afterEach(() => vi.unstubAllGlobals());

  function answering(
    respond: (url: string, init: RequestInit) => Response,
  ): { url: string; init: RequestInit }[] {
    const calls: { url: string; init: RequestInit }[] = [];
    vi.stubGlobal("fetch", async (url: string, init: RequestInit) => {
      calls.push({ url, init });
      return respond(url, init);
    });
    return calls;
  }

  test("is asked under the path the page is served from", () => {
    vi.stubGlobal("document", { baseURI: "https://host/proxy/8787/" });
    expect(apiUrl("/runs", { limit: 5, filter: undefined, archived: false })).toBe(
      "https://host/proxy/8787/api/v1/runs?limit=5&archived=false",
    );
  });

  test("is asked for many keys in several requests", async () => {
    const calls = answering(() => new Response(encode([{ key: "a", columns: COLUMNS }])));
    const keys = Array.from({ length: 50 }, (_, at) => `k${at}`);
    expect(await fetchSeries("run one", keys, { buckets: 10 })).toHaveLength(2);
    expect(calls.map(({ url }) => new URL(url).searchParams.get("keys")!.split(",").length)).toEqual([
      40, 10,
    ]);
    expect(new URL(calls[0]!.url).pathname).toBe("/api/v1/runs/run%20one/series");
  });

  test("shows the error message of the server", async () => {
    answering(() =>
      Response.json({ error: { message: "buckets is 0; give 1 to 4000.", id: "e1" } }, { status: 400 }),
    );
    const error = await api.get("runs").catch((caught: unknown) => caught);
    expect(error).toBeInstanceOf(ApiError);
    expect(error).toMatchObject({ status: 400, message: "buckets is 0; give 1 to 4000.", id: "e1" });
  });

  test("says the status when a proxy answers instead", async () => {
    answering(() => new Response("<h1>Bad Gateway</h1>", { status: 502, statusText: "Bad Gateway" }));
    await expect(api.get("runs")).rejects.toMatchObject({
      status: 502,
      message: "The server answered 502 Bad Gateway.",
    });
  });

  test("says that the server is gone when nothing answers", async () => {
    answering(() => {
      throw new TypeError("network");
    });
    await expect(api.get("runs")).rejects.toMatchObject({ status: 0 });
  });

  test("sends changes with the header that marks them as the page's own", async () => {
    const calls = answering(() => new Response(null, { status: 204 }));
    await api.del("alerts/silences", { rule: "slow" });
    expect(calls[0]!.init).toMatchObject({
      method: "DELETE",
      body: '{"rule":"slow"}',
      headers: { "X-Stepscope": "1" },
    });
  });
});
