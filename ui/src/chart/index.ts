// The public names of the charts.

export { default as Chart } from "./line_chart/Chart.svelte";
export { default as EventLane } from "./timeline/EventLane.svelte";
export { default as Heatmap } from "./heatmap/Heatmap.svelte";
export { default as Histogram } from "./bars/Histogram.svelte";
export { default as OverviewBrush } from "./timeline/OverviewBrush.svelte";
export { default as Sparkline } from "./Sparkline.svelte";
export { default as StackBars } from "./bars/StackBars.svelte";
export { default as Stroke } from "./Stroke.svelte";
export { nameDevices } from "./series/labels";
export { ofKey } from "./series/merge";
export type * from "./props";
export { summaryOf } from "./summary";
export { dashOf } from "./drawing/theme";
export { ChartSync, type ChartActions, type Range, type Spot, type SyncOptions, type SyncState } from "./control/sync";
