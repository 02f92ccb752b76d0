// Decides which requests the worker answers: the page and its files, never data, never a way in.

/** `page`: any address of the page. `file`: a built file. Null: the browser asks the server as ever. */
export type Kind = "page" | "file" | null;

interface Asked {
  url: string;
  method: string;
  /** `navigate` where a person goes to an address. */
  mode: string;
}

export function kindOf({ url, method, mode }: Asked, scope: string, files: ReadonlySet<string>): Kind {
  if (method !== "GET" || !url.startsWith(scope)) return null;
  const { pathname, searchParams } = new URL(url);
  const path = pathname.slice(new URL(scope).pathname.length);
  if (/^(api|login)(\/|$)/.test(path)) return null;
  // The token is exchanged for a cookie: that is between the browser and the server alone.
  if (searchParams.has("token")) return null;
  if (files.has(path)) return "file";
  return mode === "navigate" ? "page" : null;
}

/** Whether an answer is a proxy's, which has found no server behind it. */
export function isGone(status: number): boolean {
  return status === 502 || status === 503 || status === 504;
}
