import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { loadersOf, pagePath, partsOf, routeOf, runPath } from "../../src/app/route";
import { SHORTCUTS } from "../../src/app/shortcuts";
import { PAGES, pageNames, RUN_FRAME, RUN_PAGES, runPageNames } from "../../src/pages/list";

const SOURCES = join(import.meta.dirname, "../../src");
const LIST = join("pages", "list.ts");
const files = readdirSync(SOURCES, { recursive: true, encoding: "utf8" }).filter((file) =>
  /\.(ts|svelte)$/.test(file),
);
const text = (file: string): string => readFileSync(join(SOURCES, file), "utf8");

describe("the list of pages", () => {
  test("has every page, and each once", () => {
    const components = files.filter((file) => /Page\.svelte$/.test(file)).map((file) => file.slice("pages/".length));
    const loaded = [...text(LIST).matchAll(/import\("\.\/(.*Page\.svelte)"\)/g)].map((match) => match[1]);
    expect(loaded.sort()).toEqual(components.sort());
  });

  test("is all that names the path of a page", () => {
    const paths = [...Object.values(PAGES), ...Object.values(RUN_PAGES), RUN_FRAME].map((page) => page.path);
    const named = new RegExp(`["'\`}]/(${paths.filter(Boolean).join("|")})["'\`/?]`);
    const code = (file: string): string => text(file).replace(/\/\*\*.*?\*\/|^\s*\/\/.*?$/gms, "");
    expect(files.filter((file) => file !== LIST && named.test(code(file)))).toEqual([]);
  });

  test("is all that imports a page", () => {
    expect(files.filter((file) => file !== LIST && /Page\.svelte["']/.test(text(file)))).toEqual([]);
  });

  test("costs the first script nothing but the list", () => {
    const imports = (file: string): string[] =>
      [...text(file).matchAll(/^import (?!type).*? from "(.*)";$/gm)].map((match) => match[1]!);
    expect(imports("main.ts")).toEqual(["./app/route"]);
    expect(imports("app/route.ts")).toEqual(["../pages/list"]);
    expect(imports(LIST)).toEqual([]);
  });

  test.each([PAGES, RUN_PAGES])("has paths, titles and keys that differ", (pages) => {
    const list = Object.values(pages);
    for (const values of [list.map((page) => page.path), list.map((page) => page.title)])
      expect(new Set(values).size).toBe(list.length);
    const keys = list.flatMap((page) => page.key ?? []);
    expect(new Set(keys).size).toBe(keys.length);
  });

  test("is what the help says about keys", () => {
    const told = SHORTCUTS[0]!.items.filter((item) => item.keys[0] === "g");
    const keyed = Object.values(PAGES).filter((page) => page.key);
    expect(told).toEqual(keyed.map((page) => ({ keys: ["g", page.key], does: page.title })));
    expect(SHORTCUTS[1]!.items[0]!.does).toBe("Overview, Metrics, System, Steps, Diagnose, Logs, Config");
  });
});

describe("the route of a path", () => {
  test.each(pageNames)("of %s is the page", (name) => {
    const route = routeOf(partsOf(pagePath(name)));
    expect(route).toEqual({ page: name, run: null, tab: null });
    expect(loadersOf(route)).toEqual([PAGES[name].load]);
  });

  test.each(runPageNames)("of %s of a run is that page", (name) => {
    const route = routeOf(partsOf(runPath("a b/c", name)));
    expect(route).toEqual({ page: null, run: "a b/c", tab: name });
    expect(loadersOf(route)).toEqual([RUN_FRAME.load, RUN_PAGES[name].load]);
  });

  test("may begin with the list of runs, as older links do", () => {
    expect(routeOf(["runs", "r1", "steps"])).toEqual({ page: null, run: "r1", tab: "steps" });
  });

  test("leads nowhere if there is no such page", () => {
    expect(routeOf(["nowhere"])).toEqual({ page: null, run: null, tab: null });
    expect(loadersOf(routeOf(["nowhere"]))).toEqual([]);
    expect(routeOf(["run", "r1", "nowhere"])).toEqual({ page: null, run: "r1", tab: null });
  });
});
