// Actions on runs, for any page.

import { api, type NewMarks, type NewFeedback, type RunRow } from "../data";
import { asApiError } from "./resource.svelte";
import { toast } from "./toasts.svelte";

/** Changes the marks of a run; shows a message if that fails. */
export async function changeMarks(run: string, change: NewMarks): Promise<RunRow | null> {
  try {
    return await api.put<RunRow>(`runs/${encodeURIComponent(run)}/marks`, change);
  } catch (error) {
    toast(asApiError(error).message, { tone: "bad" });
    return null;
  }
}

/** Says that a finding is wrong or not wanted, or withdraws that for null; false if it could not be saved. */
export async function changeFeedback(
  run: string,
  finding: string,
  opinion: NewFeedback["opinion"] | null,
): Promise<boolean> {
  const path = `runs/${encodeURIComponent(run)}/feedback/${encodeURIComponent(finding)}`;
  try {
    await (opinion === null ? api.del(path) : api.put(path, { opinion } satisfies Partial<NewFeedback>));
    return true;
  } catch (error) {
    toast(asApiError(error).message, { tone: "bad" });
    return false;
  }
}

/** Archives or unarchives runs, with undo. */
export async function archive(runs: RunRow[], archived: boolean, done: () => void): Promise<void> {
  const answers = await Promise.all(runs.map((run) => changeMarks(run.id, { archived })));
  if (answers.every((answer) => answer === null)) return;
  done();
  const what = runs.length === 1 ? `“${runs[0]!.name}”` : `${runs.length} runs`;
  toast(`${archived ? "Archived" : "Unarchived"} ${what}`, {
    undo: () => void archive(runs, !archived, done),
  });
}

/** Starts a demo run and returns its id. */
export async function startDemo(): Promise<string | null> {
  try {
    return (await api.post<{ run: string }>("demo")).run;
  } catch (error) {
    toast(asApiError(error).message, { tone: "bad" });
    return null;
  }
}
