"""Computes the share of step time of each phase, even where only some steps were timed by phase."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stepscope.analysis.steady import SHORTEST_S
from stepscope.schema.keys import PHASES, SAMPLED_RATIO, STEP_SECONDS, device_key, gap_key, phase_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepscope.schema.window import Flags, Floats, RankWindow

MIN_STEPS = 5
"""Minimum number of steps with a phase, all of the same weight, for its share to be given."""

MOSTLY = 0.9
"""A phase that was timed in at least this share of all steps is summed without weights."""


MAX_OWN_S = 0.001
"""The most time that stepscope itself takes in a sampled step; longer sampled steps are chance."""

LONG = 2.0
"""A step is long if it takes this many times the median."""


def sample_weights(ratios: Floats, taken: Floats, all_taken: Floats) -> Floats:
    """Returns how many steps each sampled step represents, from its sampling probability.

    `taken` are the times of the sampled steps, `all_taken` those of all. Long steps represent as many as are
    long: a single one that happens to be sampled must not stand for a hundred usual ones.
    """
    probabilities = np.where(np.isfinite(ratios) & (ratios > 0), ratios, 1.0)
    weights: Floats = 1.0 / np.minimum(probabilities, 1.0)
    limit = LONG * float(np.median(all_taken)) if len(all_taken) else np.inf
    long = taken > limit
    if long.any() and not long.all():
        share, together = float((all_taken > limit).mean()), float(weights.sum())
        weights[long] *= share * together / float(weights[long].sum())
        weights[~long] *= (1 - share) * together / float(weights[~long].sum())
    return weights


def phase_shares(rank: RankWindow, *, steady: bool = True) -> dict[str, float]:
    """Returns the share of step time of each phase, on the host's clock.

    Phases that were timed in nearly every step, such as the wait for data, are summed. The rest of the time
    is divided as in the sampled steps, each weighted by the number of steps it represents; not given where
    these are too few.
    """
    whole = rank.where(STEP_SECONDS, steady=steady)
    taken = float(rank.columns[STEP_SECONDS].values[whole].sum())
    if taken <= SHORTEST_S:
        return {}
    known: dict[str, float] = {}
    sampled: dict[str, float] = {}
    represented = 0.0
    for phase in PHASES:
        key = phase_key(phase)
        if not rank.has(key):
            continue
        chosen = rank.where(key, STEP_SECONDS, steady=steady) & ~_is_between(rank, phase)
        weights = _weights(rank, chosen, whole)
        if _equal_steps(weights) < MIN_STEPS:
            continue
        values = rank.columns[key].values[chosen]
        if chosen.sum() >= MOSTLY * whole.sum():
            known[phase] = float(values.sum())
        else:
            sampled[phase] = float((values * weights).sum())
            represented = max(represented, float(weights.sum()))
    rest = max(taken - sum(known.values()), 0.0)
    spent = known | divide(rest, int(whole.sum()), sampled, represented)
    return {phase: seconds / taken for phase, seconds in spent.items()}


def divide(seconds: float, steps: int, sampled: Mapping[str, float], represented: float) -> dict[str, float]:
    """Divides the time of all steps among phases as in the sampled steps, which represent so many steps.

    Sampled steps take longer, because stepscope itself works in them between two phases: what is more than
    their share of the time is left out of `other`, as far as it can be stepscope's.
    """
    surplus = sum(sampled.values()) - seconds * represented / steps
    own = min(max(surplus, 0.0), MAX_OWN_S * represented)
    spent = {
        phase: value - min(own, value) if phase == "other" else value for phase, value in sampled.items()
    }
    together = sum(spent.values())
    return {phase: seconds * value / together for phase, value in spent.items() if together > 0}


def _equal_steps(weights: Floats) -> float:
    """Returns how many steps of equal weight would say as much: a few with large weights say little."""
    return float(weights.sum() ** 2 / (weights**2).sum()) if len(weights) else 0.0


def _is_between(rank: RankWindow, phase: str) -> Flags:
    """Returns the steps whose value belongs to a gap between two steps, such as an evaluation."""
    between = rank.columns.get(gap_key(phase))
    if between is None:
        return np.zeros(len(rank.steps), bool)
    same: Flags = rank.columns[phase_key(phase)].values == between.values
    return same


def _weights(rank: RankWindow, chosen: Flags, whole: Flags) -> Floats:
    if not rank.has(SAMPLED_RATIO):
        return np.ones(int(chosen.sum()))
    taken = rank.columns[STEP_SECONDS].values
    return sample_weights(rank.columns[SAMPLED_RATIO].values[chosen], taken[chosen], taken[whole])


def median_shares(rank: RankWindow) -> dict[str, float]:
    """Returns the share of the median step that each phase takes in its median.

    For phases that every step has alike: it needs few sampled steps, and slow ones do not change it.
    """
    shares = {}
    for phase in PHASES:
        if rank.has(phase_key(phase), STEP_SECONDS):
            part, taken = rank.aligned(phase_key(phase), STEP_SECONDS)
            if len(part) >= MIN_STEPS and float(np.median(taken)) > SHORTEST_S:
                shares[phase] = min(float(np.median(part) / np.median(taken)), 1.0)
    return shares


def seconds_within(rank: RankWindow, phase: str) -> Floats:
    """Returns the seconds of a phase within each step; those between two steps are recorded with it."""
    within: Floats = np.maximum(recorded(rank, phase_key(phase)) - recorded(rank, gap_key(phase)), 0.0)
    return within


def recorded(rank: RankWindow, key: str) -> Floats:
    """Returns the values of a key, 0 where it was not recorded."""
    column = rank.columns.get(key)
    return np.zeros(len(rank.steps)) if column is None else np.where(column.finite, column.values, 0.0)


def device_shares(rank: RankWindow) -> dict[str, float]:
    """Returns the same on the GPU's clock, from the steps that were timed on it."""
    shares = {}
    for phase in PHASES:
        if rank.has(device_key(phase), device_key("step")):
            part, taken = rank.aligned(device_key(phase), device_key("step"))
            if len(part) >= MIN_STEPS and taken.sum() > SHORTEST_S:
                shares[phase] = float(part.sum() / taken.sum())
    return shares
