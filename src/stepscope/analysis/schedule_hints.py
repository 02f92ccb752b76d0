"""Tells what a loss may do because of its schedule or its data, for those who judge whether it diverges."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stepscope.schema.keys import BATCH_SIZES, LEARNING_RATE

if TYPE_CHECKING:
    from stepscope.schema.window import RankWindow

ROSE = 1.2
"""A rate that is so many times what it was has been raised."""

UNKNOWN_SHARE = 0.5
"""Where no rate was recorded, a restart of the schedule may bring the loss up to this share of its first."""

CHANGED, AROUND = 1.5, 20
"""Batches that differ by this factor, by the medians of so many around a step, have changed."""


def first_loss(rank: RankWindow, key: str) -> float:
    """Where the loss of a segment began, as far as that is known."""
    course = rank.course.get(key)
    if course is not None and len(course) and np.isfinite(course.mean[0]):
        return float(course.mean[0])
    (losses,) = rank.aligned(key, steady=False)
    return float(np.median(losses[:5])) if rank.is_whole else float(losses.max())


def level_by_schedule(rank: RankWindow, key: str) -> float:
    """The loss that the schedule alone may have led to: below it, a rise is no sign of anything else."""
    if LEARNING_RATE not in rank.columns:
        return UNKNOWN_SHARE * first_loss(rank, key)
    (rates,) = rank.aligned(LEARNING_RATE, steady=False)
    if len(rates) and float(rates[-1]) > ROSE * float(rates.min()):
        return first_loss(rank, key)
    return float("-inf")


def batches_changed(rank: RankWindow, step: int) -> bool:
    """Whether batches are of another size since about a step than before it."""
    key = rank.first_of(BATCH_SIZES)
    if key is None:
        return False
    sizes = rank.columns[key]
    before = sizes.values[sizes.finite & (rank.steps < step)][-AROUND:]
    since = sizes.values[sizes.finite & (rank.steps >= step)][:AROUND]
    if not len(before) or not len(since):
        return False
    usual, now = float(np.median(before)), float(np.median(since))
    return max(usual, now) >= CHANGED * max(min(usual, now), 1e-9)
