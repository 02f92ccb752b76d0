// Keyboard shortcuts of the overview brush.

import type { ChartSync } from "../control/sync";

export function brushKey(event: KeyboardEvent, sync: ChartSync): void {
  const window = sync.window;
  if (!window || event.ctrlKey || event.metaKey || event.altKey) return;
  const step = (window.to - window.from) * (event.shiftKey ? 0.5 : 0.1);
  switch (event.key) {
    case "ArrowLeft":
      sync.panBy(-step);
      break;
    case "ArrowRight":
      sync.panBy(step);
      break;
    case "+":
    case "=":
      sync.zoomBy(0.5);
      break;
    case "-":
      sync.zoomBy(2);
      break;
    case "0":
    case "Home":
      sync.reset();
      break;
    default:
      return;
  }
  event.preventDefault();
  event.stopPropagation();
}
