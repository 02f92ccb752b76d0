// Builds the page into the Python package: hashed assets, relative addresses, nothing inline.
import { fileURLToPath } from "node:url";
import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vitest/config";
import { leanUplot } from "./plugins/lean_uplot.ts";
import { licences } from "./plugins/licences.ts";
import { noAddresses } from "./plugins/no_addresses.ts";
import { preloadShell } from "./plugins/preload_shell.ts";
import { serviceWorker, WORKER } from "./plugins/service_worker.ts";
import { tidy } from "./plugins/tidy.ts";

/** Code that several pages share is in few files: the first script is small, so that it finds the page's code early. */
const GROUPS = [
  { name: "first", priority: 3, test: /\/src\/(pages\/list|app\/route)\.ts|preload-helper/ },
  { name: "shell", priority: 2, test: /\/(svelte|src\/(app|parts|format|data))\/(?!.*(Palette|Shortcut))/ },
  { name: "chart", priority: 1, test: /\/(uplot|src\/chart\/(line_chart|control|drawing|series))\// },
];

export default defineConfig(({ mode }) => ({
  base: "./",
  plugins: [leanUplot(), svelte(), noAddresses(), licences(), preloadShell(), serviceWorker(), tidy()],
  build: {
    outDir: fileURLToPath(new URL(mode === "test" ? "dist/test_page" : "../src/stepscope/web/page", import.meta.url)),
    emptyOutDir: false,
    target: "es2022",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    cssCodeSplit: false,
    reportCompressedSize: true,
    rolldownOptions: {
      input: {
        index: fileURLToPath(new URL("index.html", import.meta.url)),
        sw: fileURLToPath(new URL("src/worker/sw.ts", import.meta.url)),
      },
      // The worker lies beside the page, whose paths it answers for, and has one name for ever.
      output: {
        entryFileNames: ({ name }) => (name === "sw" ? WORKER : "assets/[name]-[hash].js"),
        codeSplitting: { groups: GROUPS },
      },
    },
  },
  server: {
    port: 5173,
    strictPort: false,
    proxy: { "/api": { target: "http://127.0.0.1:8787", changeOrigin: false } },
  },
  test: { include: ["tests/**/*.test.ts"], setupFiles: ["tests/setup.ts"], environment: "node" },
}));
