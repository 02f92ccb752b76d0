// Reports when a chart comes near the screen and when it is far away; all charts share two observers.

export interface VisibilityListener {
  /** The chart is within one screen of the visible part, or no longer. */
  near(isNear: boolean): void;
  /** The chart is more than three screens away, and nobody edits it: its memory can be freed. */
  far(): void;
}

const listeners = new WeakMap<Element, VisibilityListener>();
let observers: IntersectionObserver[] | null = null;

/** The last entry of each chart: a busy page gets several at once, and what was far may be near again. */
function newest(entries: IntersectionObserverEntry[]): IntersectionObserverEntry[] {
  return [...new Map(entries.map((entry) => [entry.target, entry])).values()];
}

export function watchVisibility(element: Element, listener: VisibilityListener): () => void {
  observers ??= [
    new IntersectionObserver(
      (entries) =>
        newest(entries).forEach(({ isIntersecting, target }) => listeners.get(target)?.near(isIntersecting)),
      {
        rootMargin: "100% 0px",
      },
    ),
    new IntersectionObserver(
      (entries) =>
        newest(entries).forEach(({ isIntersecting, target }) => {
          if (!isIntersecting && !target.contains(document.activeElement)) listeners.get(target)?.far();
        }),
      {
        rootMargin: "300% 0px",
      },
    ),
  ];
  listeners.set(element, listener);
  for (const observer of observers) observer.observe(element);
  return () => {
    listeners.delete(element);
    for (const observer of observers ?? []) observer.unobserve(element);
  };
}
