// Removes what an earlier build left, after the new page is written: a running server always has one.
import { existsSync, readdirSync, rmSync } from "node:fs";
import { join, relative } from "node:path";
import type { Plugin } from "vite";

export function tidy(): Plugin {
  return {
    name: "tidy",
    apply: "build",
    writeBundle(options, bundle) {
      const folder = options.dir;
      if (!folder || !existsSync(folder)) return;
      const written = new Set(Object.keys(bundle));
      for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
        const file = join(entry.parentPath, entry.name);
        if (entry.isFile() && !written.has(relative(folder, file))) rmSync(file);
      }
    },
  };
}
