// What pages use of the charts.

export { default as Chart } from "./Chart.svelte";
export { default as EventLane } from "./EventLane.svelte";
export { default as Heatmap } from "./Heatmap.svelte";
export { default as Histogram } from "./Histogram.svelte";
export { default as OverviewBrush } from "./OverviewBrush.svelte";
export { default as Sparkline } from "./Sparkline.svelte";
export { default as StackBars } from "./StackBars.svelte";
export { default as Stroke } from "./Stroke.svelte";
export { nameDevices } from "./labels";
export { ofKey } from "./merge";
export type * from "./props";
export { summaryOf } from "./summary";
export { dashOf } from "./theme";
export { ChartSync, type ChartActions, type Range, type Spot, type SyncOptions, type SyncState } from "./sync";
