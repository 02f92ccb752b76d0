import { afterEach, describe, expect, test, vi } from "vitest";
import { csvOfEverything, csvOfShown } from "../../src/chart/drawing/export";
import { grainOf, nonfiniteText, outsideText, summaryOf } from "../../src/chart/summary";
import { MAX_ROWS, tableOf } from "../../src/chart/series/table";
import { SERIES_COLUMNS } from "../../src/data/types";
import { bucketsOf, encode } from "../synthetic";
import { lineOf } from "./stage";

describe("the text of a chart", () => {
  test("says where a line began and ended, how far it went and what was not finite", () => {
    const text = summaryOf([bucketsOf("loss", [0, 6000, 12_400], [2.31, NaN, 0.84])]);
    expect(text).toBe(
      "Loss fell from 2.31 to 0.84 over 12,400 steps; minimum 0.84, maximum 2.31, last 0.84. " +
        "1 value was not finite.",
    );
  });

  test("knows what rises and what stays, in its unit", () => {
    expect(summaryOf([bucketsOf("eval/accuracy", [0, 10], [0.1, 0.9])])).toContain("rose from 10% to 90%");
    expect(summaryOf([bucketsOf("step_seconds", [0, 10], [0.2, 0.2])])).toContain("stayed near 200 ms");
    expect(
      summaryOf([bucketsOf("gpu_power_watts", [0, 60], [300, 100], [0, 60], { axis: "seconds" })]),
    ).toContain("over 1 min");
  });

  test("of nothing says so, and of many lines names the first", () => {
    expect(summaryOf([])).toBe("No data yet.");
    expect(summaryOf([bucketsOf("loss", [0], [NaN])])).toContain("has no finite value");
    expect(summaryOf(Array.from({ length: 9 }, (_, at) => bucketsOf(`k${at}`, [0, 1], [1, 2])))).toContain(
      "5 more lines",
    );
  });
});

describe("a line without any finite value", () => {
  const text = (values: number[], more = {}) =>
    nonfiniteText([bucketsOf("loss", values.map((_, at) => at), values, undefined, more)]);

  test("says which values there are instead of drawing an axis", () => {
    expect(text([NaN, NaN])).toBe("All 2 values are NaN.");
    expect(text([-Infinity, -Infinity, -Infinity])).toBe("All 3 values are −Inf.");
    expect(text([NaN, Infinity, NaN])).toBe("No finite value: 2 NaN, 1 Inf.");
    expect(text([NaN])).toBe("The only value is NaN.");
    const coarse = { count: Float64Array.of(500, 500), nonfinite: Float64Array.of(500, 500) };
    expect(text([NaN, NaN], coarse)).toBe("None of 1,000 values is finite (NaN).");
  });

  test("is not one with a finite value, nor one without values", () => {
    expect(text([NaN, 1])).toBeNull();
    expect(text([])).toBeNull();
  });
});

describe("a range beside all data", () => {
  const text = (from: number, to: number, axis: "step" | "seconds" = "step") =>
    outsideText([lineOf([0, 2999], [1, 2]), lineOf([], [])], { from, to }, axis);

  test("says where the data is", () => {
    expect(text(900_000, 900_100)).toBe("No data in this range. There is data from 0 to about 2,999.");
    expect(text(900_000, 900_100, "seconds")).toBe("No data in this range.");
  });

  test("is none that a line goes through, nor one of a chart without data", () => {
    expect(text(100, 200)).toBeNull();
    expect(outsideText([lineOf([], [])], { from: 0, to: 1 }, "step")).toBeNull();
  });
});

describe("how many points are drawn", () => {
  test("is every point, or buckets that keep the extremes", () => {
    expect(grainOf([lineOf([0, 1], [1, 2])], "step")).toBe("2 points, all drawn");
    const coarse = lineOf([0, 512], [1, 2], { width: 512, count: Float64Array.of(512, 500) });
    expect(grainOf([coarse, lineOf([0], [1], { superseded: true })], "step")).toBe(
      "1,012 points, 512 steps per bucket, extremes kept",
    );
    expect(grainOf([], "step")).toBe("");
  });
});

describe("the table of a chart", () => {
  test("has a row for each place and a column for each line", () => {
    const table = tableOf(
      [lineOf([0, 1, 9], [1, 2, 3]), lineOf([1, 2], [5, 6], { group: "h", label: "other" })],
      { from: 0, to: 2 },
    );
    expect(table.columns).toEqual(["loss", "other"]);
    expect(table.rows).toEqual([
      { x: 0, values: [1, null] },
      { x: 1, values: [2, 5] },
      { x: 2, values: [null, 6] },
    ]);
  });

  test("is thinned where there are too many, and says how many there were", () => {
    const x = Array.from({ length: 1000 }, (_, at) => at);
    const table = tableOf([lineOf(x, x)], { from: 0, to: 999 });
    expect(table.places).toBe(1000);
    expect(table.rows.length).toBeLessThanOrEqual(MAX_ROWS + 1);
    expect(table.rows[table.rows.length - 1]!.x).toBe(999);
  });
});

describe("a chart as CSV", () => {
  afterEach(() => vi.unstubAllGlobals());

  test("holds the buckets that are shown", () => {
    const line = lineOf([0, 1, 2], [1, NaN, 3], { label: 'a "quoted", name' });
    const rows = csvOfShown([line], { from: 1, to: 2 }, "step").trim().split("\n");
    expect(rows[0]).toBe("line,key,step,time,value,smoothed,min,max,count,nonfinite");
    expect(rows.slice(1)).toEqual([
      '"a ""quoted"", name",loss,1,1,NaN,,NaN,NaN,1,1',
      '"a ""quoted"", name",loss,2,2,3,,3,3,1,0',
    ]);
  });

  test("cannot be taken for a formula by a spreadsheet", () => {
    expect(csvOfShown([lineOf([0], [1], { label: "=HYPERLINK(1)" })], { from: 0, to: 1 }, "step")).toContain(
      "\n'=HYPERLINK(1),",
    );
  });

  test("of everything asks piece by piece until no bucket holds more than one point", async () => {
    const asked: string[] = [];
    vi.stubGlobal("fetch", async (address: string) => {
      const query = new URL(address).searchParams;
      const from = query.get("from");
      asked.push(from ?? "all");
      const start = from === null ? [0, 8000] : [Number(from)];
      return new Response(encode([{ key: "loss", columns: SERIES_COLUMNS.map(() => start) }]));
    });
    const text = await csvOfEverything("r", ["loss"], "step");
    expect(asked).toEqual(["all", "0", "8000"]);
    expect(text.trim().split("\n")).toEqual([
      "key,rank,host,device,segment,superseded,step,time,value",
      "loss,1,h,,s,false,0,0,0",
      "loss,1,h,,s,false,8000,8000,8000",
    ]);
  });
});
