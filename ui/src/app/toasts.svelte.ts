// Short words at the edge of the page about what was just done.

const SHOWN_MS = 6_000;

export interface Toast {
  id: number;
  text: string;
  tone: "ok" | "bad";
  undo: (() => void) | null;
}

let count = 0;

/** The words shown now. */
export const toasts = $state<Toast[]>([]);

/** Shows words for a few seconds, with a way back where there is one. */
export function toast(
  text: string,
  { tone = "ok", undo = null }: Partial<Omit<Toast, "id" | "text">> = {},
): void {
  const id = ++count;
  toasts.push({ id, text, tone, undo });
  setTimeout(() => drop(id), SHOWN_MS);
}

/** Takes words away. */
export function drop(id: number): void {
  const at = toasts.findIndex((one) => one.id === id);
  if (at >= 0) toasts.splice(at, 1);
}

/** Copies text to the clipboard and says so. */
export async function copy(text: string, what = "Copied"): Promise<void> {
  try {
    // Without https and on another machine browsers have no clipboard, only the older way.
    if (navigator.clipboard) await navigator.clipboard.writeText(text);
    else if (!copySelected(text)) throw new Error("nothing was copied");
    toast(what);
  } catch {
    toast("The browser did not allow copying. Select the text and copy it by hand.", { tone: "bad" });
  }
}

function copySelected(text: string): boolean {
  const box = document.createElement("textarea");
  box.value = text;
  box.className = "visually-hidden";
  const focused = document.activeElement;
  document.body.append(box);
  box.select();
  const copied = document.execCommand("copy");
  box.remove();
  if (focused instanceof HTMLElement) focused.focus();
  return copied;
}
