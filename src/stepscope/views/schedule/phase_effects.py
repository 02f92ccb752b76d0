"""Judges the effect of each learning-rate phase on the loss, compared with its noise, in a sentence."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from stepscope.views.schedule.loss_levels import (
    MIN_IN_WINDOW,
    MIN_LOSSES,
    Change,
    Level,
    autocorrelation_of,
    change,
    level_at_end,
    level_at_start,
    noise_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from stepscope.views.schedule.loss_levels import Noise
    from stepscope.views.schedule.rate_phases import RatePhase

    Floats = NDArray[np.float64]

MAX_VALUE = 1e100
"""Losses that are not below this are not used: NaN, infinite, or diverged."""

CERTAIN, LIKELY = 0.99, 0.95
"""Confidence from which a change is stated as a fact, and as likely."""

NEAR_MAX_RATIO = 0.9
"""A rate of at least this share of the maximum counts as the highest rate."""

MIN_FOR_HALVES = 4 * MIN_IN_WINDOW
"""Minimum number of losses to judge the second half of a phase separately."""


class Course(NamedTuple):
    """One value for each step, in order."""

    steps: Floats
    values: Floats

    def between(self, first: float, last: float) -> Course:
        """Returns the values in a range of steps, both ends included."""
        begin, end = np.searchsorted(self.steps, [first, last + 1])
        return Course(self.steps[begin:end], self.values[begin:end])

    def finite(self) -> Course:
        """Returns the values that are finite and small enough to be squared."""
        known = np.abs(self.values) < MAX_VALUE
        return Course(self.steps[known], self.values[known])


@dataclass(frozen=True)
class Effect:
    """The effect of a phase on the loss."""

    first_step: int
    last_step: int
    losses: int
    """The number of finite losses."""
    before: Level | None = None
    """The level at the end of the previous phase."""
    after: Level | None = None
    noise: Noise | None = None
    second_half: Change | None = None
    """None for too few losses to split."""
    rose_at_highest: bool = False
    """Whether the loss clearly rose while the rate was at its highest, in this phase."""
    not_finite: int = 0
    first_not_finite: int | None = None
    """The step of the first loss that was not finite."""

    @property
    def change(self) -> Change | None:
        """How much the loss fell; None for too few losses to judge."""
        if self.before is None or self.after is None or self.losses < MIN_LOSSES:
            return None
        return change(self.before, self.after)


def effects(phases: Sequence[RatePhase], rates: Course, losses: Course) -> list[Effect]:
    """Returns the effect of each phase; each phase starts at the level at which the previous one ended."""
    finite = losses.finite()
    autocorrelation = autocorrelation_of(finite.values)
    run_noise = noise_of(finite.values, autocorrelation)
    phase_effects = []
    level: Level | None = None
    for first, last in _step_ranges(phases, rates, losses):
        phase_losses, known = losses.between(first, last), finite.between(first, last)
        noise = noise_of(known.values, autocorrelation) if len(known.steps) >= MIN_LOSSES else run_noise
        effect = Effect(first, last, len(known.steps))
        if len(known.steps):
            before = level_at_start(*known, noise) if level is None else level
            level = level_at_end(*known, noise)
            second = _second_half(known, level, noise)
            effect = replace(effect, before=before, after=level, noise=noise, second_half=second)
        phase_effects.append(_with_failures(effect, phase_losses))
    return _with_rise_at_highest(phase_effects, rates, finite, run_noise)


def _step_ranges(phases: Sequence[RatePhase], rates: Course, losses: Course) -> list[tuple[int, int]]:
    """Returns the first and last step of each phase; all steps belong to a phase."""
    ends = [rates.steps[0], rates.steps[-1], *losses.steps[:1], *losses.steps[-1:]]
    begins = [int(min(ends)), *(int(rates.steps[phase.first]) for phase in phases[1:])]
    return list(zip(begins, [*(begin - 1 for begin in begins[1:]), int(max(ends))], strict=True))


def _second_half(known: Course, after: Level, noise: Noise) -> Change | None:
    middle = len(known.steps) // 2
    if len(known.steps) < MIN_FOR_HALVES:
        return None
    return change(level_at_end(known.steps[:middle], known.values[:middle], noise), after)


def _with_failures(effect: Effect, losses: Course) -> Effect:
    failed = losses.steps[~(np.abs(losses.values) < MAX_VALUE)]
    return replace(effect, not_finite=len(failed), first_not_finite=int(failed[0])) if len(failed) else effect


def _with_rise_at_highest(
    phase_effects: list[Effect], rates: Course, finite: Course, noise: Noise
) -> list[Effect]:
    """Marks the phase around which the rate was at its highest, if the loss rose during that time."""
    top = int(np.argmax(rates.values))
    lower = np.flatnonzero(rates.values < NEAR_MAX_RATIO * rates.values[top])
    index = int(np.searchsorted(lower, top))
    if not len(lower):  # a constant rate says nothing about a high one
        return phase_effects
    first = rates.steps[lower[index - 1] + 1] if index else phase_effects[0].first_step
    last = rates.steps[lower[index]] - 1 if index < len(lower) else phase_effects[-1].last_step
    known = finite.between(first, last)
    if len(known.steps) < 2 * MIN_IN_WINDOW:
        return phase_effects
    moved = change(level_at_start(*known, noise), level_at_end(*known, noise))
    rose = moved.fell < 0 and moved.confidence >= CERTAIN
    middle = (first + last) / 2
    return [
        replace(effect, rose_at_highest=rose and effect.first_step <= middle < effect.last_step + 1)
        for effect in phase_effects
    ]


def verdict(effect: Effect, improvement_ratio: float | None, steps_ratio: float, rates: Course) -> str:
    """Returns what can be said about a phase, and no more than the numbers show."""
    clauses = [_main_clause(effect, improvement_ratio, steps_ratio), _second_half_clause(effect)]
    if effect.rose_at_highest:
        what = "it" if clauses[0].startswith("the loss rose") else "the loss"
        top = f"{rates.values.max():.3g}"
        clauses.append(f"{what} rose while the rate was at its highest: {top} may be too high")
    if effect.first_not_finite is not None:
        rate = float(np.interp(effect.first_not_finite, *rates))
        count = f"{effect.not_finite:,} of {effect.losses + effect.not_finite:,} losses"
        at = f"the first at step {effect.first_not_finite:,} with a rate of {rate:.3g}"
        clauses.append(f"{count} were not finite, {at}")
    return "; ".join(clause for clause in clauses if clause)


def _main_clause(effect: Effect, improvement_ratio: float | None, steps_ratio: float) -> str:
    moved = effect.change
    if effect.losses == 0:
        return "has no finite loss"
    if moved is None:
        return f"has {effect.losses} losses, too few to judge" if effect.losses > 1 else "has only one loss"
    if moved.confidence < LIKELY:
        return "no measurable effect"
    certain = moved.confidence >= CERTAIN
    confidence = "over 99.9%" if moved.confidence > 0.999 else f"{moved.confidence:.1%}"
    if moved.fell < 0:
        clause = f"the loss {'rose' if certain else 'probably rose'} by {-moved.fell:.3g}"
    elif improvement_ratio is None or steps_ratio == 1:
        clause = f"{'lowered' if certain else 'probably lowered'} the loss by {moved.fell:.3g}"
    else:
        brought = f"{_percent(improvement_ratio)} of the improvement in {_percent(steps_ratio)} of the steps"
        clause = f"{'gave' if certain else 'probably gave'} {brought}"
    return f"{clause} (confidence {confidence})"


def _second_half_clause(effect: Effect) -> str:
    """Says whether a phase that lowered the loss still did so in its second half."""
    whole, half = effect.change, effect.second_half
    if whole is None or half is None or whole.fell <= 0 or whole.confidence < CERTAIN:
        return ""
    if half.confidence < LIKELY:
        return "no measurable effect in its second half"
    return "the loss rose in its second half" if half.fell < 0 and half.confidence >= CERTAIN else ""


def _percent(ratio: float) -> str:
    return f"{ratio:.0%}" if ratio >= 0.005 else "less than 1%"
