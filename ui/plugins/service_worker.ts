// Gives the service worker the list of built files, and a version that changes with them.
import { createHash } from "node:crypto";
import type { Plugin } from "vite";

export const WORKER = "sw.js";

export function serviceWorker(): Plugin {
  return {
    name: "service-worker",
    apply: "build",
    enforce: "post",
    generateBundle(_options, bundle) {
      const worker = bundle[WORKER];
      if (worker?.type !== "chunk") throw new Error(`The build made no ${WORKER}.`);
      const files = Object.keys(bundle)
        .filter((name) => name.startsWith("assets/") && !name.endsWith(".txt"))
        .sort();
      const page = bundle["index.html"];
      // File names contain a hash of their content.
      const version = createHash("sha256")
        .update(files.join("\n"))
        .update(worker.code)
        .update(page?.type === "asset" ? page.source : "")
        .digest("hex");
      const shell = JSON.stringify({ files, version: version.slice(0, 16) });
      worker.code = worker.code.replace("__SHELL__", () => shell);
    },
  };
}
