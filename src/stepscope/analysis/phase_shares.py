"""Computes the share of step time of each phase, even where only some steps were timed by phase."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stepscope.analysis.steady import SHORTEST_S
from stepscope.schema.keys import PHASES, SAMPLED_RATIO, STEP_SECONDS, device_key, gap_key, phase_key

if TYPE_CHECKING:
    from stepscope.schema.window import Flags, Floats, RankWindow

MIN_STEPS = 5
"""Minimum number of steps with a phase for its share to be given."""

MOSTLY = 0.9
"""A phase that was timed in at least this share of all steps is summed without weights."""


def sample_weights(ratios: Floats) -> Floats:
    """Returns how many steps each sampled step represents, from its sampling probability."""
    probabilities = np.where(np.isfinite(ratios) & (ratios > 0), ratios, 1.0)
    weights: Floats = 1.0 / np.minimum(probabilities, 1.0)
    return weights


def phase_shares(rank: RankWindow, *, steady: bool = True) -> dict[str, float]:
    """Returns the share of step time of each phase, on the host's clock.

    Phases that were timed in nearly every step, such as the wait for data, are summed. The rest of the time
    is divided as in the sampled steps, each weighted by the number of steps it represents.
    """
    whole = rank.where(STEP_SECONDS, steady=steady)
    taken = float(rank.columns[STEP_SECONDS].values[whole].sum())
    if taken <= SHORTEST_S:
        return {}
    known: dict[str, float] = {}
    sampled: dict[str, float] = {}
    for phase in PHASES:
        key = phase_key(phase)
        if not rank.has(key):
            continue
        chosen = rank.where(key, STEP_SECONDS, steady=steady) & ~_is_between(rank, phase)
        if chosen.sum() < MIN_STEPS:
            continue
        values = rank.columns[key].values[chosen]
        if chosen.sum() >= MOSTLY * whole.sum():
            known[phase] = float(values.sum()) / taken
        else:
            sampled[phase] = float((values * _weights(rank, chosen)).sum())
    together = sum(sampled.values())
    rest = max(1.0 - sum(known.values()), 0.0)
    return known | {phase: rest * spent / together for phase, spent in sampled.items() if together > 0}


def _is_between(rank: RankWindow, phase: str) -> Flags:
    """Returns the steps whose value belongs to a gap between two steps, such as an evaluation."""
    between = rank.columns.get(gap_key(phase))
    if between is None:
        return np.zeros(len(rank.steps), bool)
    same: Flags = rank.columns[phase_key(phase)].values == between.values
    return same


def _weights(rank: RankWindow, chosen: Flags) -> Floats:
    if not rank.has(SAMPLED_RATIO):
        return np.ones(int(chosen.sum()))
    return sample_weights(rank.columns[SAMPLED_RATIO].values[chosen])


def device_shares(rank: RankWindow) -> dict[str, float]:
    """Returns the same on the GPU's clock, from the steps that were timed on it."""
    shares = {}
    for phase in PHASES:
        if rank.has(device_key(phase), device_key("step")):
            part, taken = rank.aligned(device_key(phase), device_key("step"))
            if len(part) >= MIN_STEPS and taken.sum() > SHORTEST_S:
                shares[phase] = float(part.sum() / taken.sum())
    return shares
