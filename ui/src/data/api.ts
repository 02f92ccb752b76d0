// Sends requests to the API: builds URLs, turns failures into ApiError, adds the header that changes need.

import { parseShown } from "./shown_text";

export type Query = Record<string, string | number | boolean | undefined>;

/** The server returned an error, or could not be reached (`status` 0). */
export class ApiError extends Error {
  override readonly name = "ApiError";

  constructor(
    readonly status: number,
    message: string,
    /** Also in the server's log; empty if the server sent none. */
    readonly id: string = "",
  ) {
    super(message);
  }
}

let heard = (): void => undefined;

/** Calls whenever the server itself has answered a request, also with an error. */
export function onAnswer(listener: () => void): void {
  heard = listener;
}

/** The URL of an API path, below the base URL of the page. */
export function apiUrl(path: string, query: Query = {}): string {
  const url = new URL(`api/v1/${path.replace(/^\/+/, "")}`, new URL(".", document.baseURI));
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined) url.searchParams.set(name, String(value));
  }
  return url.href;
}

/** Sends a request and turns every failure into an ApiError; an abort stays an abort. */
export async function request(path: string, query: Query = {}, init: RequestInit = {}): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(apiUrl(path, query), { credentials: "same-origin", ...init });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, "The server does not answer. It may have been stopped.");
  }
  // A proxy answers with 502 and similar for an unreachable server.
  if (response.status < 500) heard();
  if (!response.ok) throw await errorOf(response);
  return response;
}

async function errorOf(response: Response): Promise<ApiError> {
  try {
    const body = (await response.json()) as { error?: { message?: string; id?: string } };
    if (body.error?.message) return new ApiError(response.status, body.error.message, body.error.id ?? "");
  } catch {
    // Not our JSON: a proxy has answered. Its status is enough.
  }
  return new ApiError(
    response.status,
    `The server answered ${response.status} ${response.statusText}.`.replace(" .", "."),
  );
}

async function change<T>(method: string, path: string, body: unknown): Promise<T> {
  const response = await request(
    path,
    {},
    {
      method,
      headers: { "Content-Type": "application/json", "X-Stepscope": "1" },
      body: body === undefined ? undefined : JSON.stringify(body),
    },
  );
  return response.status === 204 ? (undefined as T) : parseShown<T>(await response.text());
}

export const api = {
  async get<T>(path: string, query: Query = {}, signal?: AbortSignal): Promise<T> {
    return parseShown<T>(await (await request(path, query, { signal })).text());
  },
  put: <T = void>(path: string, body: unknown): Promise<T> => change<T>("PUT", path, body),
  post: <T = void>(path: string, body?: unknown): Promise<T> => change<T>("POST", path, body),
  del: <T = void>(path: string, body?: unknown): Promise<T> => change<T>("DELETE", path, body),
};
