"""Finds spikes: losses that jump up and come back.

A loss is compared with the median of those before it, in units of their spread. That alone would call every
noisy loss a spike now and then, so more is asked: that it lies beyond what the run's own noise reaches by its
tail, and that it is large beside the loss itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from stepscope.analysis.robust import TO_SIGMA, expected_beyond, likeness

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

BEFORE = 50
"""A loss is compared with so many before it."""

MIN_BEFORE = 20
STRIDE = 5
"""The level is worked out anew every so many losses."""

BACK = 5
"""After so many usual losses a spike is over."""

LONGEST_SPIKE = 25
"""What lasts longer is no spike: a schedule, or a departure."""

BY_CHANCE = 1e-3
"""How many spikes a window may have by chance for one to be told."""

MIN_SHARE = 1.0
"""A spike rises by so much of the level it rises from."""

ALIKE = 0.3
"""Losses whose deviations are more alike than this are smoothed, or drift: neighbours say the same."""

ONE_IN = 400
"""In so many losses there may be one spike; what comes more often is how the loss is."""


@dataclass(frozen=True)
class Excursion:
    """A stretch of losses far above what was usual before it; places count the losses of the window."""

    begin: int
    end: int
    """The first place after it."""
    peak: int
    level: float
    """The usual loss before it."""
    value: float
    """The greatest loss in it, or of a departure the median of its end."""
    deviations: float
    """How far that lies from the level, in spreads."""


def spikes(losses: Floats, limit: float) -> list[Excursion]:
    """Spikes that have passed, oldest first; `limit` is in spreads."""
    if len(losses) < MIN_BEFORE + BACK:
        return []
    begin_at, (levels, sizes) = _before(losses), _levels(losses)
    deviations = (losses - levels) / sizes
    scale = np.maximum(np.abs(levels), 0.25 * _range(levels))
    out = (deviations > limit) & (losses - levels >= MIN_SHARE * scale)
    out[:begin_at] = False  # with those there is nothing to compare
    if not out.any():
        return []
    usual = np.ones(len(losses), bool)
    stretches = list(_stretches(out))
    for begin, end in stretches:
        usual[begin:end] = False
    others = deviations[begin_at:][usual[begin_at:]]
    found = []
    for begin, end in stretches:
        peak = begin + int(np.argmax(losses[begin:end]))
        after = losses[end : end + 2 * BACK]
        if end - begin > LONGEST_SPIKE or len(after) < BACK:
            continue
        level, size = float(levels[begin]), float(sizes[begin])
        if float(np.median(after)) - level > max(3 * size, 0.2 * (float(losses[peak]) - level)):
            continue  # it stays up there, or comes down so slowly that it was no single batch
        # The other stretches count as what the run's noise can do, but for a few that may be spikes too.
        peaks = sorted(float(deviations[low:high].max()) for low, high in stretches if low != begin)
        rest = np.append(others, peaks[: max(len(peaks) - len(losses) // ONE_IN, 0)])
        if _by_chance(rest, deviations[begin:end]) < BY_CHANCE:
            found.append(
                Excursion(begin, end, peak, float(levels[peak]), float(losses[peak]), float(deviations[peak]))
            )
    return found


def _by_chance(others: Floats, stretch: Floats) -> float:
    """How many stretches like this one the run's own noise would make in a window.

    By the greatest of it; and where neighbours are not alike, by three in a row, each as rare as the least.
    """
    found = expected_beyond(others, float(stretch.max()))
    if len(stretch) < 3 or likeness(np.clip(others, -6.0, 6.0)) > ALIKE:
        return found
    least = np.minimum(np.minimum(stretch[:-2], stretch[1:-1]), stretch[2:]).max()
    # Ten times over: what is not known well of one is not known three times as well.
    return min(found, 10 * expected_beyond(others, float(least)) ** 3 / len(others) ** 2)


def _before(losses: Floats) -> int:
    """With how many before it a loss is compared."""
    return BEFORE if len(losses) >= 2 * BEFORE else MIN_BEFORE


def _levels(losses: Floats) -> tuple[Floats, Floats]:
    """The median of those before each loss, and their spread."""
    count, size = len(losses), _before(losses)
    ends = np.arange(size, count, STRIDE)
    views = np.lib.stride_tricks.sliding_window_view(losses, size)[ends - size]
    middles = np.median(views, axis=1)
    sizes = TO_SIGMA * np.median(np.abs(views - middles[:, None]), axis=1)
    which = np.maximum((np.arange(count) - size) // STRIDE, 0)
    levels, spreads = middles[which], sizes[which]
    return levels, np.maximum(spreads, np.maximum(1e-3 * np.abs(levels), 1e-12))


def _range(levels: Floats) -> float:
    """How far the usual loss has come within the window."""
    low, high = np.quantile(levels, [0.1, 0.9])
    return float(high - low)


def _stretches(out: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Stretches of true places, those less than three apart taken together."""
    places = np.flatnonzero(out)
    cuts = np.flatnonzero(np.diff(places) > 3)
    begins = places[np.r_[0, cuts + 1]]
    ends = places[np.r_[cuts, len(places) - 1]] + 1
    return list(zip(begins.tolist(), ends.tolist(), strict=True))
