// Proposes how a term of the filter language may go on.

const STATUSES = ["running", "stalled", "finished", "failed", "crashed"];
const NUMBERS = [
  "steps",
  "steps_per_second",
  "loss",
  "best_loss",
  "data_wait",
  "gpu_util",
  "gpu_worst",
  "memory",
  "duration",
  "eta",
  "alerts",
  "ranks",
  "hosts",
  "segments",
];

export interface Known {
  tags: string[];
  projects: string[];
  configKeys: string[];
  verdicts: string[];
}

export interface Completion {
  /** What replaces the term. */
  term: string;
  about: string;
}

/** The term the cursor is in: where it begins, and what is typed of it. */
export function termAt(text: string, cursor: number): { begin: number; typed: string } {
  const begin = text.lastIndexOf(" ", cursor - 1) + 1;
  return { begin, typed: text.slice(begin, cursor) };
}

function values(key: string, known: Known): string[] {
  const all: Record<string, string[]> = {
    status: STATUSES,
    tag: known.tags,
    project: known.projects,
    verdict: known.verdicts,
  };
  return all[key] ?? [];
}

/** At most eight ways to go on with a term. */
export function completions(typed: string, known: Known): Completion[] {
  const minus = typed.startsWith("-") ? "-" : "";
  const word = typed.slice(minus.length);
  const [key = "", begun] = word.split(":", 2);
  if (begun !== undefined) {
    return values(key, known)
      .filter((value) => value.toLowerCase().startsWith(begun.toLowerCase()) && value !== begun)
      .map((value) => ({ term: `${minus}${key}:${/\s/.test(value) ? `"${value}"` : value} `, about: "" }))
      .slice(0, 8);
  }
  if (word === "" || /[<>=/]/.test(word)) return [];
  const keys: Completion[] = [
    { term: "status:", about: "running, stalled, finished, failed, crashed" },
    { term: "tag:", about: "has this tag" },
    { term: "project:", about: "belongs to this project" },
    { term: "verdict:", about: "what the diagnosis says" },
    { term: "started>", about: "started>-2d: in the last two days" },
    ...NUMBERS.map((name) => ({ term: `${name}>`, about: "a number, with > >= < <= =" })),
    ...known.configKeys.map((name) => ({ term: `config.${name}=`, about: "from the configuration" })),
  ];
  return keys
    .filter(({ term }) => term.toLowerCase().includes(word.toLowerCase()) && term !== word)
    .sort((a, b) => Number(!a.term.startsWith(word)) - Number(!b.term.startsWith(word)))
    .map((one) => ({ ...one, term: minus + one.term }))
    .slice(0, 8);
}
