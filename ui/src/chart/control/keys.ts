// Keyboard shortcuts of a chart that has the focus.

import type { ChartController } from "./controller";
import type { ChartSync } from "./sync";

/** Runs the action of a key and stops the event; ignores other keys. */
export function chartKey(
  event: KeyboardEvent,
  controller: ChartController,
  sync: ChartSync,
  figure: HTMLElement,
): void {
  if (event.target !== figure || event.ctrlKey || event.metaKey || event.altKey) return;
  const action = actionOf(event, controller, sync, figure);
  if (!action) return;
  event.preventDefault();
  event.stopPropagation();
  action();
}

function actionOf(
  event: KeyboardEvent,
  controller: ChartController,
  sync: ChartSync,
  figure: HTMLElement,
): (() => void) | null {
  const far = event.shiftKey ? 10 : 1;
  switch (event.key) {
    case "ArrowLeft":
      return () => controller.stepCrosshair(-far);
    case "ArrowRight":
      return () => controller.stepCrosshair(far);
    case "Home":
      return () => sync.followLive();
    case "0":
      return () => controller.reset();
    case "+":
    case "=":
      return () => sync.zoomBy(0.5);
    case "-":
      return () => sync.zoomBy(2);
    case "ContextMenu":
      return () => controller.pinHere();
    case "F10":
      return event.shiftKey ? () => controller.pinHere() : null;
    case "Enter":
      return () => void toggleFullScreen(figure);
    case "Escape":
      // Only if something is pinned: otherwise the page handles Escape.
      return controller.isPinned || sync.crosshair !== null ? () => controller.unpin() : null;
    default:
      return null;
  }
}

export async function toggleFullScreen(figure: HTMLElement): Promise<void> {
  if (document.fullscreenElement === figure) await document.exitFullscreen();
  else await figure.requestFullscreen?.();
}
