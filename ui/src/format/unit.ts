// The unit of a key, from the suffix of its name; the same names as on the server.

export type Unit =
  | ""
  | "seconds"
  | "bytes"
  | "bytes/s"
  | "ratio"
  | "celsius"
  | "watts"
  | "joules"
  | "hertz"
  | "/s"
  | "count"
  | (string & {});

const ENDINGS: [RegExp, Unit][] = [
  [/_bytes_per_second$/, "bytes/s"],
  [/tokens_per_second$/, "tokens/s"],
  [/samples_per_second$/, "samples/s"],
  [/_per_second$/, "/s"],
  [/(^|_)seconds(_total)?$/, "seconds"],
  [/_bytes(_total)?$/, "bytes"],
  [/_ratio$/, "ratio"],
  [/accuracy$/, "ratio"],
  [/_celsius$/, "celsius"],
  [/_watts$/, "watts"],
  [/_joules(_total)?$/, "joules"],
  [/_hertz$/, "hertz"],
  [/_percent$/, "%"],
  [/_ms$/, "ms"],
  [/_total$/, "count"],
];

/** The unit of a key by its ending; empty for a plain number. */
export function unitOf(key: string): Unit {
  const name = key.slice(key.lastIndexOf("/") + 1).toLowerCase();
  return ENDINGS.find(([ending]) => ending.test(name))?.[1] ?? "";
}
