// What a person can do to runs from any page.

import { api, type MarksChange, type RunRow } from "../data";
import { asApiError } from "./resource.svelte";
import { toast } from "./toasts.svelte";

/** Changes what people add to a run; says what went wrong when it does not work. */
export async function changeMarks(run: string, change: MarksChange): Promise<RunRow | null> {
  try {
    return await api.put<RunRow>(`runs/${encodeURIComponent(run)}/marks`, change);
  } catch (error) {
    toast(asApiError(error).message, { tone: "bad" });
    return null;
  }
}

/** Archives runs, or brings them back, with a way to undo it. */
export async function archive(runs: RunRow[], archived: boolean, done: () => void): Promise<void> {
  const answers = await Promise.all(runs.map((run) => changeMarks(run.id, { archived })));
  if (answers.every((answer) => answer === null)) return;
  done();
  const what = runs.length === 1 ? `“${runs[0]!.name}”` : `${runs.length} runs`;
  toast(`${archived ? "Archived" : "Unarchived"} ${what}`, {
    undo: () => void archive(runs, !archived, done),
  });
}

/** Plays a demo run; gives its id. */
export async function playDemo(): Promise<string | null> {
  try {
    return (await api.post<{ run: string }>("demo")).run;
  } catch (error) {
    toast(asApiError(error).message, { tone: "bad" });
    return null;
  }
}
