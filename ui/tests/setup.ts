// The little of a browser that the framework-free parts need: where the page is served from, and its light colours.
import { readFileSync } from "node:fs";

const style = ["tokens", "severity", "chart"]
  .map((name) => readFileSync(new URL(`../src/style/${name}.css`, import.meta.url), "utf8"))
  .join("");

globalThis.document ??= { baseURI: "http://localhost/", documentElement: {} } as Document;
globalThis.getComputedStyle ??= (() => ({
  getPropertyValue: (name: string) => new RegExp(`${name}: ([^;]*);`).exec(style)?.[1] ?? "",
})) as unknown as typeof getComputedStyle;
