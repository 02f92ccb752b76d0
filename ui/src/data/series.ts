// Requests series and decodes the binary response into columns.

import { request } from "./api";
import { SERIES_COLUMNS, type Series, type SeriesAxis, type SeriesHeader } from "./types";

export interface SeriesOptions {
  axis?: SeriesAxis;
  from?: number;
  to?: number;
  buckets?: number;
  rank?: number;
  host?: string;
  device?: string;
  /** One line per key over all places, instead of one per place. */
  merge?: boolean;
  signal?: AbortSignal;
}

export interface SeriesAnswer {
  series: Series[];
  cursor: string;
  missing: string[];
}

/** Keys in one request: keeps URLs well below the limits of proxies. */
export const KEYS_PER_REQUEST = 40;

export async function fetchSeries(
  run: string,
  keys: string[],
  options: SeriesOptions = {},
): Promise<Series[]> {
  return (await fetchSeriesAnswer(run, keys, options)).series;
}

/** The same with the cursor to continue from, and the keys the run does not have. */
export async function fetchSeriesAnswer(
  run: string,
  keys: string[],
  options: SeriesOptions = {},
): Promise<SeriesAnswer> {
  const { signal, ...rest } = options;
  const chunks: string[][] = [];
  for (let at = 0; at < keys.length; at += KEYS_PER_REQUEST)
    chunks.push(keys.slice(at, at + KEYS_PER_REQUEST));
  const answers = await Promise.all(
    chunks.map(async (chunk) => {
      const query = { keys: chunk.join(","), format: "binary", ...rest };
      const response = await request(`runs/${encodeURIComponent(run)}/series`, query, { signal });
      return decodeSeries(await response.arrayBuffer());
    }),
  );
  return {
    series: answers.flatMap((answer) => answer.series),
    cursor: answers[0]?.cursor ?? "",
    missing: answers.flatMap((answer) => answer.missing),
  };
}

/** A uint32 length, a JSON header padded to a multiple of eight, then Float64 columns; little endian. */
export function decodeSeries(body: ArrayBuffer): SeriesAnswer {
  const headerLength = body.byteLength < 4 ? -1 : new DataView(body).getUint32(0, true);
  if (headerLength < 0 || 4 + headerLength > body.byteLength || (4 + headerLength) % 8 !== 0) {
    throw new Error(
      `The series answer of ${body.byteLength} bytes is torn: its header does not fit. Reload the page.`,
    );
  }
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(body, 4, headerLength))) as SeriesHeader;
  let offset = 4 + headerLength;
  const series = header.series.map((info) => {
    const columns: Record<string, Float64Array> = {};
    for (const name of header.columns) {
      if (offset + info.length * 8 > body.byteLength) {
        throw new Error(`The series answer ends within ${info.key}, column ${name}. Reload the page.`);
      }
      columns[name] = new Float64Array(body, offset, info.length);
      offset += info.length * 8;
    }
    const { length, ...place } = info;
    for (const name of SERIES_COLUMNS) columns[name] ??= new Float64Array(length);
    return { ...place, axis: header.axis, ...columns } as unknown as Series;
  });
  return { series, cursor: header.cursor, missing: header.missing };
}
