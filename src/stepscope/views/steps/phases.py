"""Shares out the time of a step among its phases, also where only some steps have all of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from stepscope.analysis.phase_shares import sample_weights
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
"""Ranks whose sampled steps are weighed one by one; the others do the same steps."""

_KEY = re.compile(r"phase/(.+)_seconds")


@dataclass(frozen=True)
class PhaseShare:
    """What a phase takes of a step."""

    phase: str
    key: str
    mean_s: float
    """In a mean step, all ranks together."""
    share: float
    """Of the time of all steps, from 0 to 1."""


def phase_names(keys: Iterable[str]) -> list[str]:
    """The phases among some keys, in the order of a step; those with names of their own come last."""
    names = {match[1] for key in keys if (match := _KEY.fullmatch(key)) is not None}
    return [*(name for name in PHASES if name in names), *sorted(names.difference(PHASES))]


def phases_of(run: Run, summaries: SeriesSummaries) -> tuple[PhaseShare, ...]:
    """The phases of a run; none where its steps are not timed."""
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
    """Sums over all steps, reckoned from those that have all phases.

    What was kept of every step, the wait for data above all, stays as it was added up; the rest of the time
    is shared out as it is in the sampled steps.
    """
    steps = summaries.total(STEP_SECONDS)[1]
    # A phase that somebody timed by himself was timed whenever it came.
    user_phases = {name for name in spent if name not in PHASES}
    always_timed = {name for name in spent if summaries.total(phase_key(name))[1] >= 0.9 * steps}
    always_timed |= spent.keys() & {"checkpoint"}  # which is timed whenever it comes, and only then
    sampled = dict.fromkeys((name for name in spent if name not in always_timed | user_phases), 0.0)
    for rank in summaries.ranks(SAMPLED_RATIO)[:MAX_RANKS]:
        ratios = step_values(run, SAMPLED_RATIO, rank)
        for name in sampled:
            between = step_values(run, gap_key(name), rank)
            sampled[name] += _weighted_sum(step_values(run, phase_key(name), rank), ratios, between)
    sampled_seconds = sum(sampled.values())
    remaining = max(total_seconds - sum(spent[name] for name in always_timed - user_phases), 0.0)
    scale = remaining / sampled_seconds if sampled_seconds > 0 else 0.0
    return {name: sampled[name] * scale if name in sampled else spent[name] for name in spent}


def _weighted_sum(values: StepValues, ratios: StepValues, between: StepValues) -> float:
    """A weighed sum, without what came `between` two steps and is recorded under the number of one."""
    probabilities = ratios.at(values.steps)
    if len(ratios) < 0.5 * len(values):  # told now and then, and not with each step that was kept
        probabilities = ratios.held_at(values.steps)
    known = np.isfinite(probabilities) & (values.values != between.at(values.steps))
    return float((values.values[known] * sample_weights(probabilities[known])).sum())


def _without_gaps(spent: Mapping[str, float], total_seconds: float) -> dict[str, float]:
    """In runs of earlier versions, evaluations between two steps are among the phases: they are left out."""
    others = sum(seconds for name, seconds in spent.items() if name != "eval")
    room = max(total_seconds - others, 0.0)
    return {name: min(seconds, room) if name == "eval" else seconds for name, seconds in spent.items()}
