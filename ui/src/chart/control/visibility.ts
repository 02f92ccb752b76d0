// Reports when a chart comes near the screen and when it is far away; all charts share two observers.

export interface VisibilityListener {
  /** The chart is within one screen of the visible part, or no longer. */
  near(isNear: boolean): void;
  /** The chart is more than three screens away: its memory can be freed. */
  far(): void;
}

const listeners = new WeakMap<Element, VisibilityListener>();
let observers: IntersectionObserver[] | null = null;

export function watchVisibility(element: Element, listener: VisibilityListener): () => void {
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
