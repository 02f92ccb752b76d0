// Series made up for tests.

import { SERIES_COLUMNS, type Series } from "../src/data/types";

/** Buckets of one point each. */
export function bucketsOf(
  key: string,
  start: number[],
  values: number[],
  times: number[] = start,
  more: Partial<Series> = {},
): Series {
  const column = Float64Array.from(values);
  const finite = column.map((value) => (Number.isFinite(value) ? value : NaN));
  return {
    key,
    rank: null,
    host: "",
    device: "",
    segment: "",
    superseded: false,
    axis: "step",
    width: 1,
    points: start.length,
    exact: true,
    start: Float64Array.from(start),
    count: new Float64Array(start.length).fill(1),
    min: finite,
    max: finite,
    mean: finite,
    last: column,
    nonfinite: column.map((value) => (Number.isFinite(value) ? 0 : 1)),
    time: Float64Array.from(times),
    ...more,
  };
}

/** An answer in the server's binary encoding. */
export function encode(series: { key: string; columns: number[][] }[]): ArrayBuffer {
  const header = {
    run: "r",
    axis: "step",
    columns: SERIES_COLUMNS,
    cursor: "c9",
    missing: ["gone"],
    series: series.map(({ key, columns }) => ({
      key,
      rank: 1,
      host: "h",
      device: "",
      segment: "s",
      superseded: false,
      width: 4,
      length: columns[0]!.length,
      points: 7,
      exact: false,
    })),
  };
  let text = JSON.stringify(header);
  while ((4 + new TextEncoder().encode(text).length) % 8) text += " ";
  const head = new TextEncoder().encode(text);
  const numbers = series.flatMap(({ columns }) => columns.flat());
  const body = new ArrayBuffer(4 + head.length + numbers.length * 8);
  new DataView(body).setUint32(0, head.length, true);
  new Uint8Array(body, 4).set(head);
  new Float64Array(body, 4 + head.length).set(numbers);
  return body;
}
