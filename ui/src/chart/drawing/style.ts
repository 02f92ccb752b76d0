// How charts are drawn: dashes, widths, opacities, fonts and the size of axes. Colours are in style/chart.css.

/** Dashes of lines: the seventh line has the first colour again, with other dashes. */
export const DASHES: readonly number[][] = [[], [6, 3], [2, 3], [10, 3, 2, 3]];
/** Lines of a segment that a later one replaced. */
export const SUPERSEDED_DASH = [5, 4];
/** Vertical marks of events and of the baseline. */
export const MARK_DASH = [3, 3];

/** Widths in CSS pixels. */
export const LINE_WIDTH = 1.5;
export const EMPHASISED_WIDTH = 2.5;
export const LEGEND_WIDTH = 2;

export const BAND_ALPHA = 0.18;
export const FADED_ALPHA = 0.25;
export const SUPERSEDED_ALPHA = 0.35;
/** The raw values beneath a smoothed line. */
export const RAW_ALPHA = 0.3;
export const MARK_ALPHA = { bad: 0.7, warn: 0.7, text: 0.7, muted: 0.35 };

/** Points are drawn where they are at least this many CSS pixels apart. */
export const POINT_DISTANCE = 7;
export const POINT_RADIUS = 2.25;

/** Room beside the plot in CSS pixels: for labels of the y axis, and after the last label of the x axis. */
export const AXIS_LEFT = 54;
export const AXIS_RIGHT = 14;

const FONTS = { axis: "11px", label: "500 11px", legend: "12px", mark: "600 9px", title: "600 13px" };

/** The font of a text in a chart, as a canvas takes it; `ratio` is that of canvas pixels to CSS pixels. */
export function fontOf(kind: keyof typeof FONTS, family: string, ratio = 1): string {
  return `${FONTS[kind].replace(/(\d+)px/, (_, size: string) => `${Number(size) * ratio}px`)} ${family}`;
}
