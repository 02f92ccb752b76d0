"""Says how far a loss has fallen since the beginning of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stepscope.analysis.loss.schedule_hints import first_loss
from stepscope.schema.keys import LOSS_KEYS

if TYPE_CHECKING:
    from stepscope.schema.window import RankWindow

MIN_LOSSES = 20

NEWEST = 200
"""The newest level is the median of the newest quarter of the losses, at most this many."""

FALLEN = 0.05
"""A loss that fell by this share has fallen: the run learns."""


def fallen_share(rank: RankWindow) -> float | None:
    """Returns by which share of its first value the loss has fallen, negative if it rose; None if unknown."""
    key = rank.first_of(LOSS_KEYS)
    if key is None:
        return None
    (losses,) = rank.aligned(key, steady=False)
    if len(losses) < MIN_LOSSES:
        return None
    first = first_loss(rank, key)
    newest = float(np.median(losses[-min(max(len(losses) // 4, 5), NEWEST) :]))
    return (first - newest) / abs(first) if first else None


def has_fallen(rank: RankWindow) -> bool:
    """Whether the loss has fallen, or is not known: a loss that is not recorded is no sign of a problem."""
    share = fallen_share(rank)
    return share is None or share >= FALLEN
