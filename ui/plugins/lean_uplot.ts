// Leaves out of uPlot what no chart here uses: lines are drawn by painters of our own.
import type { Plugin } from "vite";

const UNUSED: [string, string][] = [
  ["uPlot.join = join;", ""],
  ["uPlot.orient   = orient;", ""],
  ["uPlot.addGap = addGap;", ""],
  ["uPlot.clipGaps = clipGaps;", ""],
  ["const linearPath = linear() ;", "const linearPath = null;"],
  ["const pointsPath = points() ;", "const pointsPath = null;"],
  ["let paths = uPlot.paths = {\n\t\tpoints,\n\t};", ""],
  ["(paths.linear  = linear);", ""],
  ["(paths.stepped = stepped);", ""],
  ["(paths.bars    = bars);", ""],
  ["(paths.spline  = monotoneCubic);", ""],
];

export function leanUplot(): Plugin {
  return {
    name: "lean-uplot",
    enforce: "pre",
    transform(code, id) {
      if (!id.includes("uPlot.esm.js")) return null;
      let lean = code;
      for (const [line, instead] of UNUSED) {
        if (!lean.includes(line)) this.error(`uPlot no longer has the line ${line} Look what to leave out now.`);
        lean = lean.replace(line, instead);
      }
      return { code: lean, map: null };
    },
  };
}
