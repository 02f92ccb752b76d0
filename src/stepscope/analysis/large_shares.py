"""Finds the largest share of a run's time that no check explains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from stepscope.analysis.phase_shares import phase_shares
from stepscope.analysis.stack_samples import line_in
from stepscope.analysis.steady import COMPILED, SHORTEST_S
from stepscope.analysis.wording import percent, seconds
from stepscope.schema.keys import STEP_SECONDS, phase_key

if TYPE_CHECKING:
    from stepscope.schema.window import RankWindow, Window

LARGE = 0.25
"""A run with an unexplained share of time of at least this size is not called healthy."""

LARGE_WAIT = 0.2
"""The same for the wait for data."""

MIN_STEPS, MIN_LONG_S = 20, 2.0
"""The fewest steps, and the least time, for a single step to be such a share."""

KNOWN = (COMPILED[0], phase_key("eval"), phase_key("checkpoint"))
"""Times within a step that have a name."""


@dataclass(frozen=True)
class LargeShare:
    """An unexplained share of time, and the sentence that describes it."""

    share: float
    sentence: str


def largest_share(rank: RankWindow, window: Window | None = None) -> LargeShare | None:
    """Returns the largest unexplained share of time of a rank; None if no share is large."""
    wall = wall_seconds(rank)
    if wall is None:
        return None
    between = 1 - float(rank.aligned(STEP_SECONDS, steady=False)[0].sum()) / wall
    line = None if window is None else line_in(window, rank.rank, "other")
    at = f", most of it at {line.place}" if line is not None else ""
    outside = f"of step time is outside the measured phases{at}"
    candidates = [
        (phase_shares(rank, steady=False).get("other", 0.0), outside),
        (between, "of the time since the first step is between steps (evaluation, checkpoints, epochs)"),
        (_compiled(rank) / wall, "of the time since the first step was compilation"),
        _longest_step(rank),
    ]
    share, words = max(candidates)
    return LargeShare(share, f"{percent(share)} {words}") if share >= LARGE else None


def _longest_step(rank: RankWindow) -> tuple[float, str]:
    """Returns the share of step time of the longest step, without what is known of it, and its sentence."""
    chosen = rank.where(STEP_SECONDS, steady=False)
    taken = rank.columns[STEP_SECONDS].values[chosen]
    if len(taken) < MIN_STEPS:
        return 0.0, ""
    unknown = taken.copy()
    for key in KNOWN:
        if key in rank.columns:
            unknown -= np.nan_to_num(rank.columns[key].values[chosen])
    unknown[: rank.warm_up] = 0.0
    longest = int(np.argmax(unknown))
    if unknown[longest] < MIN_LONG_S:
        return 0.0, ""
    words = f"of step time is step {int(rank.steps[chosen][longest]):,}, which took {seconds(taken[longest])}"
    return float(unknown[longest] / taken.sum()), words


def wall_seconds(rank: RankWindow) -> float | None:
    """Returns the time from the start of the first step of a window to its end; None without timed steps."""
    if STEP_SECONDS not in rank.columns:
        return None
    chosen = rank.where(STEP_SECONDS, steady=False)
    taken, times = rank.columns[STEP_SECONDS].values[chosen], rank.times[chosen]
    if len(taken) < 2 or float(taken.sum()) <= SHORTEST_S:
        return None
    # Times are those of the ends of steps: the first step began before the first of them.
    return max(float(times[-1] - times[0]) + float(taken[0]), float(taken.sum()))


def waiting_share(ratio: float | None) -> LargeShare | None:
    """Returns the share of step time that waits for data, of a run that no check has examined."""
    if ratio is None or ratio < LARGE_WAIT:
        return None
    return LargeShare(ratio, f"{percent(ratio)} of step time waits for data")


def _compiled(rank: RankWindow) -> float:
    key = COMPILED[0]
    return float(np.nansum(rank.columns[key].values)) if key in rank.columns else 0.0
