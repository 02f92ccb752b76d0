"""Tells what a loss may do because of its schedule alone, for those who judge whether it has gone astray."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stepscope.schema.keys import LEARNING_RATE

if TYPE_CHECKING:
    from stepscope.schema.window import RankWindow

ROSE = 1.2
"""A rate that is so many times what it was has been raised."""

UNKNOWN_SHARE = 0.5
"""Where no rate was recorded, a restart of the schedule may bring the loss up to this share of its first."""


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
