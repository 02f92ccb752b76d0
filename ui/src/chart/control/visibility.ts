// Says when a chart comes near the screen and when it is far away: one observer each for all charts.

export interface SightListener {
  /** Within one screen of what is seen, or no longer. */
  near(isNear: boolean): void;
  /** More than three screens away: what it holds can be freed. */
  far(): void;
}

const listeners = new WeakMap<Element, SightListener>();
let observers: IntersectionObserver[] | null = null;

export function watchSight(element: Element, listener: SightListener): () => void {
  observers ??= [
    new IntersectionObserver(
      (entries) => entries.forEach((entry) => listeners.get(entry.target)?.near(entry.isIntersecting)),
      {
        rootMargin: "100% 0px",
      },
    ),
    new IntersectionObserver(
      (entries) => entries.forEach((entry) => !entry.isIntersecting && listeners.get(entry.target)?.far()),
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
