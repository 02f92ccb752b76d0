"""Finds where the level of a series changes, and so where the warm-up of a run ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stepscope.analysis.robust import spread

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

MAX_STAGES = 6
"""Maximum number of levels in a warm-up: first compilation, caches that fill, clocks that settle."""

MAX_WARM_UP_STEPS = 1024
"""Half of the longest window: diagnosis and page must leave out the same steps."""

LONGEST_PART, MIN_LONGEST = 5, 20
"""A warm-up is at most a fifth of all steps, or this many in a short run: steps that are faster in the second
half of a run are not the end of a warm-up."""

SLOWER = 1.1
"""Steps at the beginning are a warm-up if they take at least this factor longer than later ones."""

MIN_LIKELIHOOD_GAIN = 12.0
"""Log-likelihood gain from which a change of level is accepted; noise alone reaches about 5."""


def change_point(y: Floats) -> tuple[int, float] | None:
    """Returns the place of the largest change of level and its log-likelihood gain; None for short series.

    Outliers are clipped to four spreads, so that a single one does not count as a level unless it is at the
    beginning or the end.
    """
    count = len(y)
    if count < 4:
        return None
    middle, size = float(np.median(y)), float(spread(y))
    if size <= 0:
        size = float(y.std()) or 1.0
    clipped = np.clip((y - middle) / size, -4.0, 4.0)
    left = np.arange(1, count)
    sums = np.cumsum(clipped)
    gains = sums[:-1] ** 2 / left + (sums[-1] - sums[:-1]) ** 2 / (count - left) - sums[-1] ** 2 / count
    place = int(np.argmax(gains))
    unexplained = max(float((clipped**2).sum()) - sums[-1] ** 2 / count - float(gains[place]), 1e-12)
    return place + 1, count / 2 * float(np.log1p(gains[place] / unexplained))


def warm_up_length(seconds: Floats) -> int:
    """Returns how many steps at the beginning belong to the warm-up.

    Diagnosis, tiles and comparisons leave out these steps.
    """
    count, seconds = len(seconds), seconds[: 2 * MAX_WARM_UP_STEPS]
    if len(seconds) < 8:
        return 0
    logs = np.log(np.maximum(seconds, 1e-9))
    begin, most = 0, min(max(count // LONGEST_PART, MIN_LONGEST), count // 2, MAX_WARM_UP_STEPS)
    for _ in range(MAX_STAGES):
        length = _slow_head(logs[begin:])
        if length is None or begin + length > most:
            return begin
        begin += length
    return begin


def _slow_head(logs: Floats) -> int | None:
    """Returns how many steps at the beginning are slow, one or more; None if none are."""
    later = logs[len(logs) // 2 :]
    usual = float(np.median(later))
    limit = usual + max(4 * float(spread(later)), float(np.log(SLOWER)))
    if logs[0] <= limit:
        # The first step may be fast while the beginning as a whole is slow, as where every second step is.
        change = change_point(logs)
        if change is None or change[1] < MIN_LIKELIHOOD_GAIN:
            return None
        is_slower = np.median(logs[: change[0]]) - np.median(logs[change[0] :]) > np.log(SLOWER)
        return change[0] if is_slower else None
    # The slow beginning ends where three steps in a row are as fast as later ones.
    is_usual = logs <= limit
    three = is_usual[:-2] & is_usual[1:-1] & is_usual[2:]
    return int(np.argmax(three)) if three.any() else None
