// Compiles every component in runes mode; styles go to files, because the page forbids inline ones.
import { vitePreprocess } from "@sveltejs/vite-plugin-svelte";

export default {
  preprocess: vitePreprocess({ script: true, style: false }),
  compilerOptions: { runes: true, css: "external" },
};
