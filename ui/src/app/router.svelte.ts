// The router: paths without a hash below the base URL, all state in the query string.

import type { PageName, RunPageName } from "../pages/list";
import { BASE, pagePath, partsOf, pathBelow, routeOf, runPath, type Route } from "./route";

class Place {
  path = $state(pathBelow(location));
  query = $state.raw(new URLSearchParams(location.search));

  /** The parts of the path, decoded: `/run/a%20b/steps` is `["run", "a b", "steps"]`. */
  parts = $derived(partsOf(this.path));

  route = $derived(routeOf(this.parts));

  read(): void {
    this.path = pathBelow(location);
    this.query = new URLSearchParams(location.search);
  }
}

/** The current URL. */
export const place = new Place();

/** Whether the current URL is that of a run, even if the page has not drawn it yet. */
export function isAtRun(id: string): boolean {
  return partsOf(pathBelow(location))[1] === id;
}

export type Query = Record<string, string | number | boolean | null | undefined>;

function written(query: URLSearchParams): string {
  const text = query.toString();
  return text ? `?${text}` : "";
}

/** The URL of a page. */
export function href(page: PageName, query: Query = {}): string {
  return below(pagePath(page), query);
}

/** The URL of a page of a run. */
export function runHref(id: string, page: RunPageName = "overview", query: Query = {}): string {
  return below(runPath(id, page), query);
}

function below(path: string, query: Query): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "" && value !== false)
      search.set(name, String(value));
  }
  return `${BASE}${path}${written(search)}`;
}

/** Navigates to a URL made by `href`. */
export function go(address: string, { replace = false } = {}): void {
  history[replace ? "replaceState" : "pushState"](null, "", address);
  const before = place.path;
  place.read();
  if (place.path !== before) window.scrollTo(0, 0);
}

/** Changes parts of the query and keeps the rest; empty values are removed. */
export function setQuery(changes: Query, { replace = true } = {}): void {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === undefined || value === "" || value === false) query.delete(name);
    else query.set(name, String(value));
  }
  const address = location.pathname + written(query);
  if (address !== location.pathname + location.search) go(address, { replace });
}

/** The route of a link of this page; null for any other link. */
export function routeOfLink(link: HTMLAnchorElement): Route | null {
  const isOurs = link.origin === location.origin && link.pathname.startsWith(`${BASE}/`);
  return isOurs && !link.pathname.startsWith(`${BASE}/api/`) ? routeOf(partsOf(pathBelow(link))) : null;
}

/** Handles clicks on links of this page without loading it again. */
export function followLinks(): void {
  window.addEventListener("popstate", () => place.read());
  document.addEventListener("click", (event) => {
    const plain = event.button === 0 && !(event.metaKey || event.ctrlKey || event.shiftKey || event.altKey);
    const link = event.target instanceof Element ? event.target.closest("a") : null;
    if (!plain || !link || event.defaultPrevented || link.target || link.hasAttribute("download")) return;
    if (!routeOfLink(link) || link.getAttribute("href")?.startsWith("#")) return;
    event.preventDefault();
    go(link.pathname + link.search);
  });
}
