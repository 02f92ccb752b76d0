import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { PHASES } from "../../src/chart/drawing/theme";
import { SEVERITY_STYLES, STATUS_STYLES } from "../../src/parts/words";

const SOURCES = join(import.meta.dirname, "../../src");
const text = (file: string): string => readFileSync(join(SOURCES, file), "utf8");
const files = readdirSync(SOURCES, { recursive: true, encoding: "utf8" }).filter((file) =>
  /\.(ts|svelte|css)$/.test(file),
);
const PALETTES = ["tokens", "severity", "chart"].map((name) => join("style", `${name}.css`));
/** What an empty canvas of the browser has; drawn over at once. */
const CANVAS = join("chart", "drawing", "svg_canvas.ts");

/** The tokens that a file gives a value, in a theme. */
function defined(file: string, selector: string): string[] {
  const block = text(file).split(`${selector} {`)[1]?.split("}")[0] ?? "";
  return [...block.matchAll(/^ {2}(--[\w-]+): /gm)].map((match) => match[1]!);
}

describe("colours", () => {
  test("are written down in the palettes alone", () => {
    const others = files.filter((file) => !PALETTES.includes(file) && file !== CANVAS);
    expect(others.filter((file) => /[\s"':]#[0-9a-f]{6}\b|\brgb\(\d/i.test(text(file)))).toEqual([]);
  });

  test("are each defined in one file", () => {
    const all = PALETTES.flatMap((file) => defined(file, ":root"));
    expect(all.filter((name, at) => all.indexOf(name) !== at)).toEqual([]);
  });

  test.each(PALETTES.slice(1))("in %s have a value in light and in dark", (file) => {
    const dark = defined(file, ':root[data-theme="dark"]');
    expect(defined(file, ":root").filter((name) => !dark.includes(name) && name !== "--heat-mark")).toEqual([]);
  });

  test("exist for every phase", () => {
    const tokens = defined(PALETTES[2]!, ":root");
    for (const phase of PHASES) expect(tokens).toContain(`--phase-${phase}`);
  });

  test("of every severity and status come from one tone", () => {
    const rules = text(PALETTES[1]!);
    for (const { tone } of [...Object.values(SEVERITY_STYLES), ...Object.values(STATUS_STYLES)])
      expect(rules).toContain(`\n.${tone} {\n  --tone: `);
  });
});
