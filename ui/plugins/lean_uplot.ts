// Removes the parts of uPlot that no chart here uses: our own code draws the lines.
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
  // Axes of time have ticks of our own, and there is no legend.
  ["uPlot.fmtDate = fmtDate;", ""],
  ["uPlot.tzDate  = tzDate;", ""],
  ["const days3 = days.map(slice3);", "const days3 = days;"],
  ["const months3 = months.map(slice3);", "const months3 = months;"],
  ["const localTz = new Intl.DateTimeFormat().resolvedOptions().timeZone;", "const localTz = '';"],
  ["const [ timeIncrsMs, _timeAxisStampsMs, timeAxisSplitsMs ] = genTimeStuffs(1);", ""],
  ["const [ timeIncrsS,  _timeAxisStampsS,  timeAxisSplitsS  ] = genTimeStuffs(1e-3);", ""],
  ["const _tzDate  = (opts.tzDate || (ts => new Date(round(ts / ms))));", ""],
  ["const _fmtDate = (opts.fmtDate || fmtDate);", ""],
  ["const _timeAxisSplits = (ms == 1 ? timeAxisSplitsMs(_tzDate) : timeAxisSplitsS(_tzDate));", ""],
  [
    "const _timeAxisVals   = timeAxisVals(_tzDate, " +
      "timeAxisStamps((ms == 1 ? _timeAxisStampsMs : _timeAxisStampsS), _fmtDate));",
    "",
  ],
  ["const _timeSeriesVal  = timeSeriesVal(_tzDate, timeSeriesStamp(_timeSeriesStamp, _fmtDate));", ""],
  [
    "isTime ? (isStr(sv) ? timeSeriesVal(_tzDate, timeSeriesStamp(sv, _fmtDate)) : sv || _timeSeriesVal) : sv",
    "sv",
  ],
  ["(isTime ? (ms == 1 ? timeIncrsMs : timeIncrsS) : numIncrs)", "numIncrs"],
  ["isTime && sc.distr == 1 ? _timeAxisSplits : sc.distr", "sc.distr"],
  ["timeAxisVals(_tzDate, timeAxisStamps(av, _fmtDate)) :", "null :"],
  ["timeAxisVal(_tzDate, av) :", "null :"],
  ["av || _timeAxisVals", "null"],
  ["const showLegend = legend.show;", "const showLegend = false;"],
  ["self.setLegend = setLegend;", ""],
  // The crosshair and gestures are our own, and all lines are one series.
  ["const showCursor =                cursor.show;", "const showCursor = false;"],
  ["self.setCursor = (opts, _fire, _pub) => {", "const setCursor = (opts, _fire, _pub) => {"],
  ["self.addSeries = addSeries;", ""],
  ["self.delSeries = delSeries;", ""],
  ["self.addBand = addBand;", ""],
  ["self.delBand = delBand;", ""],
  ["uPlot.rangeAsinh = rangeAsinh;", ""],
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
