import { describe, expect, test } from "vitest";
import type { Frame } from "../../src/chart/drawing/plot_frame";
import { paintLines } from "../../src/chart/drawing/paint";
import { stack } from "../../src/chart/series/stack";
import { svgOf, type Drawing } from "../../src/chart/drawing/svg";
import { SvgCanvas } from "../../src/chart/drawing/svg_canvas";
import { theme } from "../../src/chart/drawing/theme";
import { lineOf } from "./stage";

const FRAME: Frame = {
  left: 100,
  top: 20,
  width: 200,
  height: 400,
  ratio: 2,
  x: { min: 0, max: 10, log: false },
  y: { min: 0, max: 100, log: false },
  y2: null,
};

function drawing(more: Partial<Drawing> = {}, lines = [lineOf([0, 5, 10], [0, 50, 100])]): Drawing {
  return {
    title: "loss",
    width: 200,
    height: 240,
    frame: FRAME,
    picture: {
      lines,
      layers: null,
      window: { from: 0, to: 10 },
      y: { min: 0, max: 100 },
      y2: null,
      marks: [],
      emphasis: { group: null, band: true },
      labels: false,
    },
    ticks: { x: [{ at: 5, text: "5" }], y: [{ at: 50, text: "50%" }], y2: [] },
    labelled: false,
    ...more,
  };
}

/** Where each thing of a kind is drawn. */
const attributes = (svg: string, name: string) =>
  [...svg.matchAll(new RegExp(` ${name}="([^"]*)"`, "g"))].map(([, value]) => value);

describe("a chart as a vector picture", () => {
  test("has its line as a path in the pixels of the page, whatever the screen has", () => {
    expect(attributes(svgOf(drawing(), theme()), "d")).toContain("M50 210L100 110L150 10");
  });

  test("has title, ticks and grid in the colours of the theme, and no bitmap", () => {
    const svg = svgOf(drawing(), { ...theme(), text: "#abcdef", grid: "#fedcba" });
    expect(svg).toMatch(/fill="#abcdef">loss</);
    expect(svg).toMatch(/>50%</);
    expect(svg).toMatch(/d="M50 110L150 110" fill="none" stroke="#fedcba"/);
    expect(svg).not.toMatch(/<image|data:/);
  });

  test("has the min–max band, and gaps without data", () => {
    const banded = lineOf([0, 1, 2], [10, NaN, 30], { exact: false });
    const whole = lineOf([0, 1], [10, 20], {
      exact: false,
      min: Float64Array.of(0, 10),
      max: Float64Array.of(20, 30),
    });
    const paths = attributes(svgOf(drawing({}, [banded, whole]), theme()), "d");
    expect(paths).toContain("M50 170L60 150L60 190L50 210Z");
    expect(paths).toContain("M50 190M70 150");
  });

  test("names several lines in a legend, one below the other where they need room", () => {
    const lines = ["first", "the second of these lines", "third"].map((label, at) =>
      lineOf([0, 1], [at, at], { label, group: label }),
    );
    const svg = svgOf(drawing({}, lines), theme());
    expect(svg).toMatch(/>first<.*>the second of these lines<.*>third</s);
    expect(Number(attributes(svg, "height")[0])).toBe(240 + 28 + 3 * 18 + 8);
  });

  test("has the layers of a stack", () => {
    const made = drawing();
    made.picture.layers = stack(made.picture.lines, false);
    expect(attributes(svgOf(made, theme()), "d")).toContain("M50 210L100 110L150 10L150 210L100 210L50 210Z");
  });

  test("has names as text, whatever they hold", () => {
    const svg = svgOf(drawing({ title: '<script>"&\u0001' }), theme());
    expect(svg).toContain("&lt;script&gt;&quot;&amp;<");
    expect(svg).not.toContain("<script");
  });

  test("has the event lines, louder ones less faded", () => {
    const made = drawing();
    made.picture.marks = [{ x: 5, tone: "bad" }];
    expect(svgOf(made, theme())).toContain(
      `d="M100 10L100 210" fill="none" stroke="${theme().bad}" stroke-width="1" stroke-linejoin="round" stroke-dasharray="3 3" opacity="0.7"`,
    );
  });
});

describe("the painters", () => {
  test("fade lines that are not at the pointer, except pinned ones", () => {
    const canvas = new SvgCanvas();
    const lines = ["a", "b", "c"].map((group) =>
      lineOf([0, 1], [1, 2], { group, colour: group, pinned: group === "b" }),
    );
    paintLines(canvas, FRAME, lines, { group: "a", band: false });
    const strokes = [...canvas.content.matchAll(/stroke="(\w)"[^>]*?(?: opacity="([\d.]+)")?\/>/g)];
    expect(strokes.map(([, colour, opacity]) => [colour, opacity])).toEqual([
      ["b", undefined],
      ["c", "0.25"],
      ["a", undefined],
    ]);
  });

  test("keep clipped elements within their group", () => {
    const canvas = new SvgCanvas();
    paintLines(canvas, FRAME, [lineOf([0, 1], [1, 2])], { group: null, band: false });
    expect(canvas.content).toMatch(/^<clipPath.*<g clip-path="url\(#clip[\w-]+\)">.*<\/g>$/);
  });
});
