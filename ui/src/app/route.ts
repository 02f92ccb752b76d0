// Which page a path names, and the path of a page.

import { PAGES, pageNames, RUN_FRAME, RUN_PAGES, runPageNames, type PageName, type RunPageName } from "../pages/list";

/** The path of the server's base URL, without a slash at the end. */
export const BASE = new URL(document.baseURI).pathname.replace(/\/$/, "");

/** The path of a URL below the base. */
export function pathBelow(url: { pathname: string }): string {
  const path = url.pathname.startsWith(BASE) ? url.pathname.slice(BASE.length) : url.pathname;
  return path.replace(/\/+$/, "") || "/";
}

/** The parts of a path, decoded: `/run/a%20b/steps` is `["run", "a b", "steps"]`. */
export function partsOf(path: string): string[] {
  return path.split("/").filter(Boolean).map(decoded);
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export interface Route {
  /** The page outside of a run; null at a run, or if there is no such page. */
  page: PageName | null;
  run: string | null;
  /** The page of the run; null if there is no such page. */
  tab: RunPageName | null;
}

/** The route of a path's parts: `["run", "a b", "steps"]`. */
export function routeOf([first = "", second = "", third = ""]: readonly string[]): Route {
  // Links to `/runs/<id>` work as well.
  if (second && (first === RUN_FRAME.path || first === PAGES.runs.path))
    return { page: null, run: second, tab: runPageNames.find((name) => RUN_PAGES[name].path === third) ?? null };
  return { page: pageNames.find((name) => PAGES[name].path === first) ?? null, run: null, tab: null };
}

export function pagePath(name: PageName): string {
  return `/${PAGES[name].path}`;
}

export function runPath(id: string, name: RunPageName): string {
  const { path } = RUN_PAGES[name];
  return `/${RUN_FRAME.path}/${encodeURIComponent(id)}${path && `/${path}`}`;
}

type Load = () => Promise<unknown>;

/** What fetches the code of a route; empty if there is no such page. */
export function loadersOf({ page, run, tab }: Route): Load[] {
  if (run !== null) return tab === null ? [RUN_FRAME.load] : [RUN_FRAME.load, RUN_PAGES[tab].load];
  return page === null ? [] : [PAGES[page].load];
}
