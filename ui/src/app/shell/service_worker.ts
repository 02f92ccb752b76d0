// Registers the service worker that caches the page.

/** The page and its requests come first. */
const PAUSE_MS = 3000;

/** Browsers allow workers only on https and localhost; the page works without. */
export function registerServiceWorker(): void {
  if (!import.meta.env.PROD || !("serviceWorker" in navigator)) return;
  const base = new URL(".", document.baseURI);
  // Fails with an untrusted certificate, or if the browser stores nothing.
  const register = (): void =>
    void navigator.serviceWorker
      .register(new URL("sw.js", base), { scope: base.pathname, updateViaCache: "none" })
      .catch(() => undefined);
  const soon = (): void => void setTimeout(register, PAUSE_MS);
  if (document.readyState === "complete") soon();
  else addEventListener("load", soon, { once: true });
}
