// Facts about the server, fetched at the start and after it was unreachable.

import { api, type Meta } from "../data";
import { live } from "./live.svelte";
import { Resource } from "./resource.svelte";

/** Version, store and state of the server. */
export const meta = new Resource<Meta>(async () => {
  const answer = await api.get<Meta>("meta");
  live.setClock(answer.now);
  return answer;
});

/** Whether names, tags, notes and silences can be changed here. */
export function canChange(): boolean {
  return meta.data !== null && !meta.data.read_only;
}
