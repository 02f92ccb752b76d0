// Reads answers of the server so that what a run is called cannot reorder the text around it.

/** Characters that turn the order of letters around; the server writes them escaped, a proxy may not. */
const OVERRIDES = /[\u202a-\u202e\u2066-\u2069]/g;
const HAS_OVERRIDES = /[\u202a-\u202e\u2066-\u2069]|\\u20(2[a-e]|6[6-9])/i;
/** Only read by people: a key or a rule's name goes back to the server as it came. */
const TEXTS = /^(message|headline|reason|title|text|detail|note)$/;

/** Parses JSON; characters that reorder text appear as `\u202e` in names of runs and in sentences. */
export function parseShown<T>(json: string): T {
  return JSON.parse(json, HAS_OVERRIDES.test(json) ? escaped : undefined) as T;
}

function escaped(this: Record<string, unknown>, field: string, value: unknown): unknown {
  if (typeof value !== "string" || !(TEXTS.test(field) || (field === "name" && "id" in this))) return value;
  return value.replace(OVERRIDES, (one) => `\\u${one.charCodeAt(0).toString(16)}`);
}
