// Removes URLs from the framework's error texts: the built page names no other site.
import type { Plugin } from "vite";

export function noAddresses(): Plugin {
  return {
    name: "no-addresses",
    apply: "build",
    renderChunk(code) {
      return { code: code.replaceAll("https://svelte.dev/e/", "svelte.dev/e/"), map: null };
    },
  };
}
