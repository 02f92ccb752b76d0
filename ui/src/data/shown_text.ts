// Parses responses so that the name of a run cannot reorder the text around it.

/** Characters that change the direction of text; the server escapes them, a proxy may not. */
const OVERRIDES = /[\u202a-\u202e\u2066-\u2069]/g;
const HAS_OVERRIDES = /[\u202a-\u202e\u2066-\u2069]|\\u20(2[a-e]|6[6-9])/i;
/** Fields that only people read: keys and rule names must go back to the server unchanged. */
const TEXTS = /^(message|headline|reason|title|text|detail|note)$/;

/** Parses JSON; characters that reorder text appear as `\u202e` in names of runs and in sentences. */
export function parseShown<T>(json: string): T {
  return JSON.parse(json, HAS_OVERRIDES.test(json) ? escaped : undefined) as T;
}

function escaped(this: Record<string, unknown>, field: string, value: unknown): unknown {
  if (typeof value !== "string" || !(TEXTS.test(field) || (field === "name" && "id" in this))) return value;
  return value.replace(OVERRIDES, (character) => `\\u${character.charCodeAt(0).toString(16)}`);
}
