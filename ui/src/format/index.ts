// The public names of number formatting.

export { ago, bytes, clock, count, duration, inUnits, number, percent, quantity } from "./quantity";
export { clockTicksOf, logTicksOf, tickDistances, ticksOf } from "./ticks";
export { unitOf, type Unit } from "./unit";
export { units, DEFAULT_UNITS, useUnits, type Units } from "./units";
