// Fetches a comparison; runs that are not in the store are left out.

import { api, ApiError, type Comparison } from "../../data";

export interface LoadedComparison extends Comparison {
  /** Requested runs that are not in the store. */
  unknown: string[];
}

interface Question {
  ids: string[];
  baseline: string | undefined;
  group: string;
  warmUp: string;
}

export async function loadComparison(question: Question, get = api.get): Promise<LoadedComparison> {
  const compare = ({ ids, baseline, group, warmUp }: Question): Promise<Comparison> =>
    get<Comparison>("compare", { runs: ids.join(","), baseline, group, warm_up: warmUp });
  try {
    return { ...(await compare(question)), unknown: [] };
  } catch (error) {
    if (!isMissing(error)) throw error;
    const { ids, baseline } = question;
    const isThere = await Promise.all(
      ids.map((id) =>
        get(`runs/${encodeURIComponent(id)}`).then(
          () => true,
          (problem: unknown) => !isMissing(problem),
        ),
      ),
    );
    const known = ids.filter((_, at) => isThere[at]);
    if (known.length === 0) throw error;
    const base = baseline !== undefined && known.includes(baseline) ? baseline : known[0];
    const unknown = ids.filter((id) => !known.includes(id));
    return { ...(await compare({ ...question, ids: known, baseline: base })), unknown };
  }
}

function isMissing(error: unknown): boolean {
  return error instanceof ApiError && error.status === 404;
}
