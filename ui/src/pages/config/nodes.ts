// Which parts of a configuration are shown, and which are expanded.

import type { Scalar, Tree } from "../../data";

export type Node = Scalar | Branch;
type Branch = Tree | (Scalar | Tree)[];

/** Deeper branches are collapsed. */
const MAX_LEVELS = 2;
/** Longer branches and texts are collapsed, so that the next entries stay on the screen. */
const MAX_ENTRIES = 20;
const MAX_CHARACTERS = 500;

export function isBranch(node: Node): node is Branch {
  return typeof node === "object" && node !== null;
}

/** Whether a branch or leaf, or something in it, contains the search text. */
export function has(name: string, node: Node, text: string): boolean {
  if (!text || name.toLowerCase().includes(text)) return true;
  if (isBranch(node)) return Object.entries(node).some(([inner, below]) => has(inner, below as Node, text));
  return String(node).toLowerCase().includes(text);
}

/** Whether a branch is expanded; with a search text, those that contain it are. */
export function isUnfolded(node: Branch, level: number, text: string): boolean {
  const entries = Object.entries(node);
  if (text) return entries.some(([name, below]) => has(name, below as Node, text));
  return level < MAX_LEVELS && entries.length <= MAX_ENTRIES;
}

/** Whether a leaf is a long text, which is collapsed. */
export function isLongText(node: Node): node is string {
  return typeof node === "string" && node.length > MAX_CHARACTERS;
}
