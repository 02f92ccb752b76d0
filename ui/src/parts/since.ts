// Formats how long ago something was, in one coarse unit.

/** `now` and `time` in seconds: `12 s ago`, `5 min ago`, `3 h ago`, `4 d ago`. */
export function since(time: number, now: number): string {
  const seconds = Math.max(0, now - time);
  if (seconds < 5) return "just now";
  if (seconds < 60) return `${Math.floor(seconds)} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 2 * 86400) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86400)} d ago`;
}
