// Suggests completions of a term of the filter language.

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
  /** The text that replaces the term. */
  text: string;
  about: string;
}

/** The term at the cursor: its start and its text. */
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
    attention: ["yes", "no"],
  };
  return all[key] ?? [];
}

/** At most eight completions of a term. */
export function completions(typed: string, known: Known): Completion[] {
  const minus = typed.startsWith("-") ? "-" : "";
  const word = typed.slice(minus.length);
  const [key = "", begun] = word.split(":", 2);
  if (begun !== undefined) {
    return values(key, known)
      .filter((value) => value.toLowerCase().startsWith(begun.toLowerCase()) && value !== begun)
      .map((value) => ({ text: `${minus}${key}:${/\s/.test(value) ? `"${value}"` : value} `, about: "" }))
      .slice(0, 8);
  }
  if (word === "" || /[<>=/]/.test(word)) return [];
  const keys: Completion[] = [
    { text: "status:", about: "running, stalled, finished, failed, crashed" },
    { text: "tag:", about: "has this tag" },
    { text: "project:", about: "belongs to this project" },
    { text: "verdict:", about: "what the diagnosis says" },
    { text: "attention:", about: "yes, no, or a word of what needs attention" },
    { text: "started>", about: "started>-2d: in the last two days" },
    ...NUMBERS.map((name) => ({ text: `${name}>`, about: "a number, with > >= < <= =" })),
    ...known.configKeys.map((name) => ({ text: `config.${name}=`, about: "from the configuration" })),
  ];
  return keys
    .filter(({ text }) => text.toLowerCase().includes(word.toLowerCase()) && text !== word)
    .sort((a, b) => Number(!a.text.startsWith(word)) - Number(!b.text.startsWith(word)))
    .map((completion) => ({ ...completion, text: minus + completion.text }))
    .slice(0, 8);
}
