// Turns mouse and touch events over a chart into actions: hover, zoom, pan, reset, pin.

/** Positions are in CSS pixels from the left and top of the plot. */
export interface GestureTarget {
  hover(place: { x: number; y: number } | null): void;
  /** While dragging: the area to zoom to; null ends it. */
  select(area: { axis: "x" | "y"; from: number; to: number } | null): void;
  zoom(area: { axis: "x" | "y"; from: number; to: number; alone: boolean }): void;
  zoomAround(factor: number, x: number): void;
  pan(axis: "x" | "y", pixels: number): void;
  reset(): void;
  pin(place: { x: number; y: number }): void;
}

interface Finger {
  x: number;
  y: number;
}

const DRAG_STARTS = 4;
const LONG_PRESS_MS = 500;
const WHEEL_STEP = 1.0015;

export class Gestures {
  private rect: DOMRect | null = null;
  private drag: {
    axis: "x" | "y";
    pan: boolean;
    from: Finger;
    last: Finger;
    alone: boolean;
    began: boolean;
  } | null = null;
  private readonly fingers = new Map<number, Finger>();
  private pinch: { distance: number; centre: number } | null = null;
  private longPress: ReturnType<typeof setTimeout> | null = null;
  private readonly stop = new AbortController();

  /** `root` is the plot with its axes, `over` the plot without them. */
  constructor(
    private readonly root: HTMLElement,
    private readonly over: HTMLElement,
    private readonly target: GestureTarget,
  ) {
    const { signal } = this.stop;
    root.addEventListener("pointerdown", (event) => this.down(event), { signal });
    root.addEventListener("pointermove", (event) => this.move(event), { signal });
    root.addEventListener("pointerup", (event) => this.up(event), { signal });
    root.addEventListener("pointercancel", (event) => this.cancel(event), { signal });
    root.addEventListener("pointerleave", () => this.drag || this.fingers.size || target.hover(null), {
      signal,
    });
    root.addEventListener("dblclick", () => target.reset(), { signal });
    root.addEventListener("contextmenu", (event) => this.menu(event), { signal });
    root.addEventListener("wheel", (event) => this.wheel(event), { signal, passive: false });
    // The position on the screen is read once, and again only after something may have moved it.
    const forget = (): void => void (this.rect = null);
    addEventListener("scroll", forget, { signal, capture: true, passive: true });
    addEventListener("resize", forget, { signal, passive: true });
    root.addEventListener("pointerenter", forget, { signal });
  }

  destroy(): void {
    this.stop.abort();
    this.clearLongPress();
  }

  private place(event: { clientX: number; clientY: number }): Finger {
    this.rect ??= this.over.getBoundingClientRect();
    return { x: event.clientX - this.rect.left, y: event.clientY - this.rect.top };
  }

  private inside({ x, y }: Finger): boolean {
    return this.rect !== null && x >= 0 && y >= 0 && x <= this.rect.width && y <= this.rect.height;
  }

  private down(event: PointerEvent): void {
    this.rect = null; // a form above the plot may have opened or closed, which is no scroll
    const place = this.place(event);
    if (event.pointerType === "touch") return this.fingerDown(event, place);
    if (event.button !== 0) return;
    const axis = this.inside(place) ? (event.altKey ? "y" : "x") : place.y > this.rect!.height ? "x" : "y";
    this.drag = {
      axis,
      pan: !this.inside(place),
      from: place,
      last: place,
      alone: event.shiftKey,
      began: false,
    };
    this.root.setPointerCapture(event.pointerId);
  }

  private move(event: PointerEvent): void {
    const place = this.place(event);
    if (event.pointerType === "touch") return this.fingerMove(event, place);
    if (!this.drag) return this.target.hover(this.inside(place) ? place : null);
    const { axis, pan, from, last } = this.drag;
    if (!this.drag.began && Math.abs(place[axis] - from[axis]) < DRAG_STARTS) return;
    this.drag.began = true;
    if (pan) this.target.pan(axis, place[axis] - last[axis]);
    else
      this.target.select({
        axis,
        from: Math.min(from[axis], place[axis]),
        to: Math.max(from[axis], place[axis]),
      });
    this.drag.last = place;
  }

  private up(event: PointerEvent): void {
    if (event.pointerType === "touch") return this.fingerUp(event);
    const drag = this.drag;
    this.drag = null;
    if (!drag?.began || drag.pan) return;
    this.target.select(null);
    const place = this.place(event);
    const ends = [drag.from[drag.axis], place[drag.axis]].sort((a, b) => a - b) as [
      number,
      number,
    ];
    this.target.zoom({ axis: drag.axis, from: ends[0], to: ends[1], alone: drag.alone });
  }

  private cancel(event: PointerEvent): void {
    this.drag = null;
    this.target.select(null);
    this.fingerUp(event);
  }

  private menu(event: MouseEvent): void {
    this.rect = null;
    const place = this.place(event);
    if (!this.inside(place)) return;
    event.preventDefault();
    this.target.pin(place);
  }

  private wheel(event: WheelEvent): void {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    this.target.zoomAround(WHEEL_STEP ** event.deltaY, this.place(event).x);
  }

  private fingerDown(event: PointerEvent, place: Finger): void {
    this.fingers.set(event.pointerId, place);
    this.clearLongPress();
    if (this.fingers.size === 2) {
      this.pinch = this.spread();
      this.target.hover(null);
    } else if (this.fingers.size === 1 && this.inside(place)) {
      this.target.hover(place);
      this.longPress = setTimeout(() => this.target.pin(place), LONG_PRESS_MS);
    }
  }

  private fingerMove(event: PointerEvent, place: Finger): void {
    const before = this.fingers.get(event.pointerId);
    if (!before) return;
    if (Math.hypot(place.x - before.x, place.y - before.y) > DRAG_STARTS) this.clearLongPress();
    this.fingers.set(event.pointerId, place);
    if (this.pinch && this.fingers.size === 2) {
      const now = this.spread();
      this.target.zoomAround(this.pinch.distance / Math.max(now.distance, 1), now.centre);
      this.target.pan("x", now.centre - this.pinch.centre);
      this.pinch = now;
    } else if (this.fingers.size === 1 && this.inside(place)) this.target.hover(place);
  }

  private fingerUp(event: PointerEvent): void {
    this.clearLongPress();
    this.fingers.delete(event.pointerId);
    if (this.fingers.size < 2) this.pinch = null;
  }

  private spread(): { distance: number; centre: number } {
    const [a, b] = [...this.fingers.values()] as [Finger, Finger];
    return { distance: Math.abs(a.x - b.x), centre: (a.x + b.x) / 2 };
  }

  private clearLongPress(): void {
    if (this.longPress !== null) clearTimeout(this.longPress);
    this.longPress = null;
  }
}
