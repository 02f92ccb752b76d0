// What the rest of the page uses to write numbers.

export { ago, bytes, clock, count, duration, number, percent, quantity } from "./quantity";
export { clockTicksOf, logTicksOf, tickDistances, ticksOf } from "./ticks";
export { unitOf, type Unit } from "./unit";
