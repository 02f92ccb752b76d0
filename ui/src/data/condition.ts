// How metrics are named in the conditions of alert rules.

const PLAIN = /^[\p{L}_][\p{L}\p{N}_]*(?:[./][\p{L}\p{N}_]+)*$/u;
const RESERVED = /^(?:and|or|not|baseline|status)$/;
/** Would be parsed as a division. */
const DIVIDED = /\/(?:[0-9][0-9.]*(?:e[0-9]+)?|and|or|not|baseline|status)$/;

/** A key as written in a condition: in backquotes if needed. */
export function keyInCondition(key: string): string {
  const isPlain = PLAIN.test(key) && !RESERVED.test(key) && !DIVIDED.test(key);
  return isPlain ? key : `\`${key.replaceAll("`", "``")}\``;
}
