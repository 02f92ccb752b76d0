// Keeps the page itself, so that it opens while the server is away. It holds nothing of any run.
//
// The page is asked for first and kept only as what to show when nobody answers: after an upgrade nobody sees
// the old one. Files have names that change with their content; a build has a worker, and a cache, of its own.

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
// Another server may lie under another path of the same host: each has caches of its own.
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
  // What changes without changing its name is asked for anew; the rest the browser has just loaded.
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
    return isGone(answer.status) ? ((await kept(scope)) ?? answer) : answer;
  } catch (error) {
    const shell = await kept(scope);
    if (shell) return shell;
    throw error;
  }
}

async function file(request: Request): Promise<Response> {
  return (await kept(request.url)) ?? fetch(request);
}

function kept(address: string): Promise<Response | undefined> {
  return caches.match(address, { cacheName });
}
