// Decides which requests the worker answers: the page and its files, never data and never logins.

/** `page`: any URL of the page. `file`: a built file. Null: the browser asks the server as usual. */
export type Kind = "page" | "file" | null;

interface PageRequest {
  url: string;
  method: string;
  /** `navigate` if a person opens a URL. */
  mode: string;
}

export function kindOf({ url, method, mode }: PageRequest, scope: string, files: ReadonlySet<string>): Kind {
  if (method !== "GET" || !url.startsWith(scope)) return null;
  const { pathname, searchParams } = new URL(url);
  const path = pathname.slice(new URL(scope).pathname.length);
  if (/^(api|login)(\/|$)/.test(path)) return null;
  // The token is exchanged for a cookie: only browser and server may see it.
  if (searchParams.has("token")) return null;
  if (files.has(path)) return "file";
  return mode === "navigate" ? "page" : null;
}

/** Whether a response is from a proxy that could not reach the server. */
export function isGone(status: number): boolean {
  return status === 502 || status === 503 || status === 504;
}
