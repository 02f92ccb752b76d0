// Caches the page itself, so that it opens while the server is unreachable. It caches no data of runs.
//
// The page is fetched first and the cache is only a fallback, so that nobody sees an old page after an upgrade.
// File names change with their content; each build has its own worker and cache.

import { isGone, kindOf } from "./which";

/** Replaced by the build: the files of the page, and a hash of them all. */
declare const __SHELL__: { files: string[]; version: string };

interface Lasting extends Event {
  waitUntil(work: Promise<unknown>): void;
}

interface Fetching extends Lasting {
  readonly request: Request;
  respondWith(answer: Promise<Response>): void;
}

interface ShellWorker {
  readonly registration: { readonly scope: string };
  skipWaiting(): Promise<void>;
  addEventListener(name: "install" | "activate", listener: (event: Lasting) => void): void;
  addEventListener(name: "fetch", listener: (event: Fetching) => void): void;
}

const worker = self as unknown as ShellWorker;
const { files, version } = __SHELL__;
const known = new Set(files);
const { scope } = worker.registration;
// Another server may have another path of the same host: each has its own caches.
const ours = `stepscope ${scope} `;
const cacheName = ours + version;

worker.addEventListener("install", (event) => {
  event.waitUntil(keep().then(() => worker.skipWaiting()));
});

worker.addEventListener("activate", (event) => {
  event.waitUntil(dropOthers());
});

worker.addEventListener("fetch", (event) => {
  const { request } = event;
  const kind = kindOf(request, scope, known);
  if (kind === "page") event.respondWith(page(request));
  if (kind === "file") event.respondWith(file(request));
});

async function keep(): Promise<void> {
  const cache = await caches.open(cacheName);
  // Files whose names do not change with their content are fetched again; the rest was just loaded.
  const named = files.filter((path) => path.startsWith("assets/"));
  const others = ["", ...files.filter((path) => !named.includes(path))];
  await cache.addAll([
    ...named.map((path) => new Request(new URL(path, scope))),
    ...others.map((path) => new Request(new URL(path, scope), { cache: "reload" })),
  ]);
}

async function dropOthers(): Promise<void> {
  const names = await caches.keys();
  const old = names.filter((name) => name.startsWith(ours) && name !== cacheName);
  await Promise.all(old.map((name) => caches.delete(name)));
}

async function page(request: Request): Promise<Response> {
  try {
    const answer = await fetch(request);
    return isGone(answer.status) ? ((await cached(scope)) ?? answer) : answer;
  } catch (error) {
    const shell = await cached(scope);
    if (shell) return shell;
    throw error;
  }
}

async function file(request: Request): Promise<Response> {
  return (await cached(request.url)) ?? fetch(request);
}

function cached(address: string): Promise<Response | undefined> {
  return caches.match(address, { cacheName });
}
