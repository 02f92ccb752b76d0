"""Finds where a series changes its level, and by that where the warm-up of a run ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stepscope.analysis.robust import spread

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

MAX_STAGES = 6
"""A warm-up has at most so many levels: a first compilation, caches that fill, clocks that settle."""

SLOWER = 1.1
"""The beginning is a warm-up if its steps take so many times what later ones take."""

SURE = 12.0
"""What a change of level has to explain, as a logarithm of likelihoods; noise explains about 5 by chance."""


def change_point(y: Floats) -> tuple[int, float] | None:
    """The place where the level changes most, and how much that explains; None where there is no place.

    Odd values are drawn in to four spreads, so that one of them is no level of its own unless it is at the
    beginning or end, where it may be one.
    """
    count = len(y)
    if count < 4:
        return None
    middle, size = float(np.median(y)), float(spread(y))
    if size <= 0:
        size = float(y.std()) or 1.0
    drawn = np.clip((y - middle) / size, -4.0, 4.0)
    left = np.arange(1, count)
    sums = np.cumsum(drawn)
    gains = sums[:-1] ** 2 / left + (sums[-1] - sums[:-1]) ** 2 / (count - left) - sums[-1] ** 2 / count
    place = int(np.argmax(gains))
    unexplained = max(float((drawn**2).sum()) - sums[-1] ** 2 / count - float(gains[place]), 1e-12)
    return place + 1, count / 2 * float(np.log1p(gains[place] / unexplained))


def warm_up_length(seconds: Floats) -> int:
    """How many steps at the beginning belong to the warm-up; at most half of them do."""
    if len(seconds) < 8:
        return 0
    logs = np.log(np.maximum(seconds, 1e-9))
    begin, most = 0, len(seconds) // 2
    for _ in range(MAX_STAGES):
        found = _slow_head(logs[begin:])
        if found is None or begin + found > most:
            return begin
        begin += found
    return begin


def _slow_head(logs: Floats) -> int | None:
    """The length of a slow beginning; looked for near it first, where a single step may be one."""
    later = logs[len(logs) // 2 :]
    usual = float(np.median(later))
    limit = usual + max(4 * float(spread(later)), float(np.log(SLOWER)))
    if logs[0] <= limit:
        # What begins as usual may still be slow on the whole, such as every second step.
        found = change_point(logs)
        if found is None or found[1] < SURE:
            return None
        is_slower = np.median(logs[: found[0]]) - np.median(logs[found[0] :]) > np.log(SLOWER)
        return found[0] if is_slower else None
    # As far as steps are slow without three usual ones in a row.
    usual_ones = logs <= limit
    three = usual_ones[:-2] & usual_ones[1:-1] & usual_ones[2:]
    return int(np.argmax(three)) if three.any() else None
