// What the rest of the page uses to write numbers.

export { ago, bytes, clock, count, duration, inUnits, number, percent, quantity } from "./quantity";
export { clockTicksOf, logTicksOf, tickDistances, ticksOf } from "./ticks";
export { unitOf, type Unit } from "./unit";
export { units, USUAL_UNITS, useUnits, type Units } from "./units";
