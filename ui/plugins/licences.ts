// Writes the licence of every bundled package to a file beside the assets.
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Plugin } from "vite";

const IN_PACKAGE = /^(.*\/node_modules\/((?:@[^/]+\/)?[^/]+))\//;

export function licences(): Plugin {
  return {
    name: "licences",
    apply: "build",
    generateBundle(_options, bundle) {
      const folders = new Map<string, string>();
      for (const piece of Object.values(bundle)) {
        if (piece.type !== "chunk") continue;
        for (const id of piece.moduleIds) {
          const found = IN_PACKAGE.exec(id.replace(/\\/g, "/").replace(/^\0/, ""));
          if (found?.[1] && found[2]) folders.set(found[2], found[1]);
        }
      }
      const texts = [...folders].sort().map(([name, folder]) => licenceOf(name, folder));
      this.emitFile({ type: "asset", fileName: "assets/licences.txt", source: texts.join("\n\n") + "\n" });
    },
  };
}

function licenceOf(name: string, folder: string): string {
  const about = JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as {
    version: string;
    license: string;
  };
  const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
  if (!file)
    throw new Error(`${name} has no licence file, so it cannot be bundled; leave it out or add its text.`);
  return `${name} ${about.version} (${about.license})\n\n${readFileSync(join(folder, file), "utf8").trim()}`;
}
