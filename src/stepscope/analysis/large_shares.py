"""Finds the largest share of a run's time that no check explains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from stepscope.analysis.phase_shares import phase_shares
from stepscope.analysis.steady import COMPILED, SHORTEST_S
from stepscope.analysis.wording import percent
from stepscope.schema.keys import STEP_SECONDS

if TYPE_CHECKING:
    from stepscope.schema.window import RankWindow

LARGE = 0.25
"""A run with an unexplained share of time of at least this size is not called healthy."""


@dataclass(frozen=True)
class LargeShare:
    """An unexplained share of time, and the sentence that describes it."""

    share: float
    sentence: str


def largest_share(rank: RankWindow) -> LargeShare | None:
    """Returns the largest unexplained share of time in a window; None if no share is large."""
    if STEP_SECONDS not in rank.columns:
        return None
    chosen = rank.where(STEP_SECONDS, steady=False)
    taken, times = rank.columns[STEP_SECONDS].values[chosen], rank.times[chosen]
    if len(taken) < 2 or float(taken.sum()) <= SHORTEST_S:
        return None
    # Times are those of the ends of steps: the first step began before the first of them.
    wall = max(float(times[-1] - times[0]) + float(taken[0]), float(taken.sum()))
    between = 1 - float(taken.sum()) / wall
    candidates = [
        (phase_shares(rank, steady=False).get("other", 0.0), "of step time is outside the measured phases"),
        (between, "of wall time is between steps (evaluation, checkpoints, start of epochs)"),
        (_compiled(rank) / wall, "of wall time was compilation"),
    ]
    share, words = max(candidates)
    return LargeShare(share, f"{percent(share)} {words}") if share >= LARGE else None


def _compiled(rank: RankWindow) -> float:
    key = COMPILED[0]
    return float(np.nansum(rank.columns[key].values)) if key in rank.columns else 0.0
