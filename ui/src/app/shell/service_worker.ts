// Has the browser keep the page itself, where it lets us.

/** What is shown comes first, and all that it asks for. */
const PAUSE_MS = 3000;

/** Only on https and on this machine do browsers have workers; elsewhere the page is as good without. */
export function keepShell(): void {
  if (!import.meta.env.PROD || !("serviceWorker" in navigator)) return;
  const base = new URL(".", document.baseURI);
  // A certificate that the browser does not trust, or a browser that keeps nothing: both refuse.
  const register = (): void =>
    void navigator.serviceWorker
      .register(new URL("sw.js", base), { scope: base.pathname, updateViaCache: "none" })
      .catch(() => undefined);
  const soon = (): void => void setTimeout(register, PAUSE_MS);
  if (document.readyState === "complete") soon();
  else addEventListener("load", soon, { once: true });
}
