// Short messages at the edge of the page about the last action.

const SHOWN_MS = 6_000;
/** Who wants to undo an action looks at what it did first. */
const UNDO_MS = 20_000;

export interface Toast {
  id: number;
  text: string;
  tone: "ok" | "bad";
  undo: (() => void) | null;
}

let count = 0;

/** The messages shown now. */
export const toasts = $state<Toast[]>([]);

/** Shows a message for some seconds, with an undo button if `undo` is given. */
export function toast(
  text: string,
  { tone = "ok", undo = null }: Partial<Omit<Toast, "id" | "text">> = {},
): void {
  const id = ++count;
  toasts.push({ id, text, tone, undo });
  setTimeout(() => drop(id), undo ? UNDO_MS : SHOWN_MS);
}

/** Removes a message. */
export function drop(id: number): void {
  const at = toasts.findIndex((toast) => toast.id === id);
  if (at >= 0) toasts.splice(at, 1);
}

/** Copies text to the clipboard and shows a message. */
export async function copy(text: string, what = "Copied"): Promise<void> {
  try {
    // Without https, browsers have no clipboard API, only the older command.
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
