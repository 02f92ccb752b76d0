"""Divides the time of steps among their phases, also if only some steps have all phases."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from stepscope.analysis.phase_shares import divide, sample_weights
from stepscope.schema.keys import PHASES, SAMPLED_RATIO, STEP_SECONDS, gap_key, phase_key
from stepscope.views.steps.step_values import step_values

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from stepscope.reading import Run
    from stepscope.views.metrics.series_summaries import SeriesSummaries
    from stepscope.views.steps.step_values import StepValues

    Floats = NDArray[np.float64]

MAX_RANKS = 4
"""Maximum number of ranks whose sampled steps are read; the other ranks do the same steps."""

_KEY = re.compile(r"phase/(.+)_seconds")


@dataclass(frozen=True)
class PhaseShare:
    """The part of a step that a phase takes."""

    phase: str
    key: str
    mean_s: float
    """Mean seconds per step, over all ranks."""
    share: float
    """Share of the time of all steps, from 0 to 1."""


def phase_names(keys: Iterable[str]) -> list[str]:
    """Returns the phases among keys, in the order of a step; phases with the user's own names come last."""
    names = {match[1] for key in keys if (match := _KEY.fullmatch(key)) is not None}
    return [*(name for name in PHASES if name in names), *sorted(names.difference(PHASES))]


def phases_of(run: Run, summaries: SeriesSummaries) -> tuple[PhaseShare, ...]:
    """Returns the phases of a run; none if its steps are not timed."""
    total_seconds, steps = summaries.total(STEP_SECONDS)
    names = phase_names(summaries.keys)
    if total_seconds <= 0 or not steps or not names:
        return ()
    spent = {name: summaries.total(phase_key(name))[0] - summaries.total(gap_key(name))[0] for name in names}
    if 0 < summaries.total(SAMPLED_RATIO)[1] < 0.99 * steps:
        spent = _estimated(run, summaries, spent, total_seconds)
    spent = _without_gaps(spent, total_seconds)
    return tuple(
        PhaseShare(name, phase_key(name), seconds / steps, seconds / total_seconds)
        for name, seconds in spent.items()
        if seconds > 0
    )


def _estimated(
    run: Run, summaries: SeriesSummaries, spent: Mapping[str, float], total_seconds: float
) -> dict[str, float]:
    """Estimates the totals over all steps from the steps that have all phases.

    Phases that were timed in every step, above all the wait for data, keep their totals; the remaining time
    is divided as in the sampled steps.
    """
    steps = summaries.total(STEP_SECONDS)[1]
    # A phase of the user's own is timed whenever it occurs.
    user_phases = {name for name in spent if name not in PHASES}
    always_timed = {name for name in spent if summaries.total(phase_key(name))[1] >= 0.9 * steps}
    always_timed |= spent.keys() & {"checkpoint"}  # which is timed whenever it occurs
    sampled = dict.fromkeys((name for name in spent if name not in always_timed | user_phases), 0.0)
    represented = 0.0
    for rank in summaries.ranks(SAMPLED_RATIO)[:MAX_RANKS]:
        ratios, taken = step_values(run, SAMPLED_RATIO, rank), step_values(run, STEP_SECONDS, rank)
        weights_of_rank = 0.0
        for name in sampled:
            between = step_values(run, gap_key(name), rank)
            values, weights = _weighted(step_values(run, phase_key(name), rank), ratios, between, taken)
            sampled[name] += float((values * weights).sum())
            weights_of_rank = max(weights_of_rank, float(weights.sum()))
        represented += weights_of_rank
    remaining = max(total_seconds - sum(spent[name] for name in always_timed - user_phases), 0.0)
    divided = divide(remaining, steps, sampled, represented)
    return {name: divided.get(name, 0.0) if name in sampled else spent[name] for name in spent}


def _weighted(
    values: StepValues, ratios: StepValues, between: StepValues, taken: StepValues
) -> tuple[Floats, Floats]:
    """Returns values and weights, without times `between` two steps that are logged under a step's number."""
    probabilities = ratios.at(values.steps)
    if len(ratios) < 0.5 * len(values):  # logged now and then, not with each sampled step
        probabilities = ratios.held_at(values.steps)
    known = np.isfinite(probabilities) & (values.values != between.at(values.steps))
    weights = sample_weights(probabilities[known], taken.at(values.steps)[known], taken.values)
    return values.values[known], weights


def _without_gaps(spent: Mapping[str, float], total_seconds: float) -> dict[str, float]:
    """Leaves out evaluations between steps, which earlier versions recorded as a phase."""
    others = sum(seconds for name, seconds in spent.items() if name != "eval")
    room = max(total_seconds - others, 0.0)
    return {name: min(seconds, room) if name == "eval" else seconds for name, seconds in spent.items()}
