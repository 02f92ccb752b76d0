// Lets the browser fetch what every page needs beside the first script, and not after it.
import type { Plugin } from "vite";

export function preloadShell(): Plugin {
  return {
    name: "preload-shell",
    apply: "build",
    transformIndexHtml: {
      order: "post",
      handler(_html, { bundle }) {
        const chunks = Object.values(bundle ?? {}).filter((file) => file.type === "chunk");
        const start = chunks.find((chunk) => chunk.facadeModuleId?.endsWith("/src/start.ts"));
        if (!start) throw new Error("The build made no file of src/start.ts.");
        const first = chunks.find((chunk) => chunk.isEntry && chunk.name === "index");
        const files = [start.fileName, ...start.imports].filter((name) => !first?.imports.includes(name));
        return files
          .filter((name) => name !== first?.fileName)
          .map((name) => ({ tag: "link", attrs: { rel: "modulepreload", crossorigin: true, href: `./${name}` }, injectTo: "head" as const }));
      },
    },
  };
}
