// Draws all charts that have changed together, once per animation frame.

const waiting = new Set<() => void>();

/** Calls once in the next frame, however often it is asked until then. */
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
