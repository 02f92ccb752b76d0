"""Shares out the time of a window's steps among their phases, where only some steps were timed by phase."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stepscope.analysis.steady import SHORTEST_S
from stepscope.schema.keys import PHASES, SAMPLED_RATIO, STEP_SECONDS, device_key, gap_key, phase_key

if TYPE_CHECKING:
    from stepscope.schema.window import Flags, Floats, RankWindow

MIN_STEPS = 5
"""Steps that must have a phase before its share is given."""

MOSTLY = 0.9
"""A phase that so much of all steps have is added up as it is."""


def sample_weights(ratios: Floats) -> Floats:
    """For how many steps each one stands that was kept with such a chance."""
    chances = np.where(np.isfinite(ratios) & (ratios > 0), ratios, 1.0)
    weights: Floats = 1.0 / np.minimum(chances, 1.0)
    return weights


def phase_shares(rank: RankWindow, *, steady: bool = True) -> dict[str, float]:
    """The share of step time that each phase takes, on the host's clock.

    The wait for data is known of every step, and is added up. The rest of the time is divided as it is in the
    steps that were timed by phase, of which each stands for as many as its chance to be chosen says.
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
    """Steps under whose number something is recorded that came between two steps, as an evaluation."""
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
    """The same on the GPU's clock, by the steps that were timed on it."""
    shares = {}
    for phase in PHASES:
        if rank.has(device_key(phase), device_key("step")):
            part, taken = rank.aligned(device_key(phase), device_key("step"))
            if len(part) >= MIN_STEPS and taken.sum() > SHORTEST_S:
                shares[phase] = float(part.sum() / taken.sum())
    return shares
