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
"""A share of the time from which a run is not called healthy unless it is explained."""


@dataclass(frozen=True)
class LargeShare:
    """A share of time that nobody has explained, and the sentence about it."""

    share: float
    sentence: str


def largest_share(rank: RankWindow) -> LargeShare | None:
    """The largest that is large, by the steps of a window; None where there is none."""
    if STEP_SECONDS not in rank.columns:
        return None
    chosen = rank.where(STEP_SECONDS, steady=False)
    taken, times = rank.columns[STEP_SECONDS].values[chosen], rank.times[chosen]
    if len(taken) < 2 or float(taken.sum()) <= SHORTEST_S:
        return None
    # The first step began before the first time that is known.
    wall = max(float(times[-1] - times[0]) + float(taken[0]), float(taken.sum()))
    between = 1 - float(taken.sum()) / wall
    found = [
        (phase_shares(rank, steady=False).get("other", 0.0), "of step time is outside the measured phases"),
        (between, "of wall time is between steps (evaluation, checkpoints, start of epochs)"),
        (_compiled(rank) / wall, "of wall time was compilation"),
    ]
    share, words = max(found)
    return LargeShare(share, f"{percent(share)} {words}") if share >= LARGE else None


def _compiled(rank: RankWindow) -> float:
    key = COMPILED[0]
    return float(np.nansum(rank.columns[key].values)) if key in rank.columns else 0.0
