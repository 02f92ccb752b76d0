// Draws all changed charts together, once per animation frame.

const waiting = new Set<() => void>();

/** Calls once in the next frame, regardless of how often it is requested. */
export function inNextFrame(call: () => void): void {
  if (waiting.size === 0) requestAnimationFrame(run);
  waiting.add(call);
}

export function notInNextFrame(call: () => void): void {
  waiting.delete(call);
}

function run(): void {
  const calls = [...waiting];
  waiting.clear();
  for (const call of calls) call();
}
