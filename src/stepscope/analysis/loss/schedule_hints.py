"""Says how far a schedule or new data may raise a loss without it being a divergence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stepscope.schema.keys import BATCH_SIZES, LEARNING_RATE

if TYPE_CHECKING:
    from stepscope.schema.window import RankWindow

ROSE = 1.2
"""A learning rate that grew by this factor has been raised."""

UNKNOWN_SHARE = 0.5
"""Without a recorded learning rate, a restarted schedule may raise the loss to this share of the first."""

CHANGED, AROUND = 1.5, 20
"""The batch size changed if the medians of this many sizes before and after a step differ by this factor."""


def first_loss(rank: RankWindow, key: str) -> float:
    """Returns the first loss of a segment, as far as it is known."""
    course = rank.course.get(key)
    if course is not None and len(course) and np.isfinite(course.mean[0]):
        return float(course.mean[0])
    (losses,) = rank.aligned(key, steady=False)
    return float(np.median(losses[:5])) if rank.is_whole else float(losses.max())


def level_by_schedule(rank: RankWindow, key: str) -> float:
    """Returns the loss up to which the schedule alone explains a rise."""
    if LEARNING_RATE not in rank.columns:
        return UNKNOWN_SHARE * first_loss(rank, key)
    (rates,) = rank.aligned(LEARNING_RATE, steady=False)
    if len(rates) and float(rates[-1]) > ROSE * float(rates.min()):
        return first_loss(rank, key)
    return float("-inf")


def batches_changed(rank: RankWindow, step: int) -> bool:
    """Whether the batch size changed at about this step."""
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
