// The time of a whole step, from the phases of which it consists.

import type { PhaseShare } from "../../data";

/** The mean time of a whole step, also if only some of its phases are timed. */
export function stepSeconds(phases: readonly PhaseShare[]): number {
  const longest = phases.reduce<PhaseShare | null>(
    (most, phase) => (phase.share > (most?.share ?? 0) ? phase : most),
    null,
  );
  return longest ? longest.mean_s / longest.share : 0;
}
