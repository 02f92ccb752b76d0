"""Finds where a loss leaves its usual course: spikes that pass, and departures that do not.

A loss is compared with the median of those before it, in units of their spread. That alone would call every
noisy loss a spike now and then, so more is asked: that it lies beyond what the run's own noise reaches by its
tail, that it is large beside the loss itself, and that the loss has not been there before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from stepscope.analysis.robust import TO_SIGMA, expected_beyond, likeness, spread

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

BEFORE = 50
"""A loss is compared with so many before it."""

FEWEST_BEFORE = 20
STRIDE = 5
"""The level is worked out anew every so many losses."""

BACK = 5
"""After so many usual losses a spike is over."""

LONGEST_SPIKE = 25
"""What lasts longer is no spike: a schedule, or a departure."""

BY_CHANCE = 1e-3
"""How many spikes a window may have by chance for one to be told."""

LEAST_SHARE = 1.0
"""A spike rises by so much of the level it rises from."""

ALIKE = 0.3
"""Losses whose deviations are more alike than this are smoothed, or drift: neighbours say the same."""

ONE_IN = 400
"""In so many losses there may be one spike; what comes more often is how the loss is."""

STANDS_HIGH = 0.5
"""A loss that stands so much above its lowest is looked at more closely."""

FACTOR = 2.0
"""A departure is to so many times the level before, beyond which it has not been since it got there."""

FIRST, LAST = 5, 20
"""So many losses at the beginning tell where a run began, and so many at the end where it stands."""

WORSE = 5.0
"""A loss that is so many times what the run began with has gone the wrong way."""

SOON = 20
"""It doubles within so many losses, or a tenth of them: what rises slowly may be meant to, as with a GAN."""


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
    if len(losses) < FEWEST_BEFORE + BACK:
        return []
    begin_at, (levels, sizes) = _before(losses), _levels(losses)
    deviations = (losses - levels) / sizes
    scale = np.maximum(np.abs(levels), 0.25 * _range(levels))
    out = (deviations > limit) & (losses - levels >= LEAST_SHARE * scale)
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


def departure(losses: Floats, limit: float, least: int, *, least_level: float) -> Excursion | None:
    """The stretch at the end that has left the course for good, if there is one; `limit` is in spreads.

    It lasts for `least` losses or more, and stands at `least_level` or above: so far a schedule may lead.
    """
    count = len(losses)
    # A look that costs little, and ends the matter for nearly every run: does it stand high at all?
    edges = np.arange(count % least, count + 1, least)
    blocks = np.median(losses[edges[0] : edges[-1]].reshape(-1, least), axis=1)
    if count < FEWEST_BEFORE + least or blocks[-1] < blocks.min() + STANDS_HIGH * abs(blocks.min()):
        return None
    length = least
    found = None
    while length <= count - FEWEST_BEFORE:
        found = _left_at(losses, count - length, limit, least_level) or found
        length = max(length + 2, int(1.3 * length))
    return found


def gone_wrong(losses: Floats) -> Excursion | None:
    """The end of a run whose loss stands far above where it began."""
    if len(losses) < FIRST + LAST:
        return None
    first, last = losses[:FIRST], losses[-LAST:]
    began, stands = float(np.median(first)), float(np.median(last))
    if began <= 0 or stands < WORSE * began or float(np.quantile(last, 0.1)) <= float(first.max()):
        return None
    size = max(float(spread(first)), 0.01 * began)
    below = np.flatnonzero(losses <= first.max())
    begin = int(below[-1]) + 1
    doubled = int(np.argmax(losses >= 2 * began))
    if doubled - begin > max(SOON, len(losses) // 10):
        return None
    return Excursion(begin, len(losses), len(losses) - 1, began, stands, (stands - began) / size)


def _left_at(losses: Floats, begin: int, limit: float, least_level: float) -> Excursion | None:
    """Whether the course was left at a place and not found again."""
    after = losses[begin:]
    before = losses[max(begin - max(BEFORE, len(after)), 0) : begin]
    level = float(np.median(before))
    size = max(float(spread(before)), 1e-3 * abs(level), 1e-12)
    stands = float(np.median(after[-LAST:]))
    earlier = losses[:begin]
    if stands - level < (FACTOR - 1) * max(abs(level), _range(earlier) / FACTOR) or stands < least_level:
        return None
    if ((after - level) / size > limit).mean() < 0.95:
        return None
    begin = _left_since(earlier, level + limit * size)
    after, earlier = losses[begin:], losses[:begin]
    third = max(len(after) // 3, 1)
    if float(np.median(after[-third:])) < 0.8 * float(np.median(after[:third])):
        return None  # it is on its way back
    if _was_there(earlier, level, stands):
        return None
    return Excursion(begin, len(losses), len(losses) - 1, level, stands, (stands - level) / size)


def _left_since(earlier: Floats, limit: float) -> int:
    """The place after the last two losses in a row that were as usual."""
    usual = earlier <= limit
    together = np.flatnonzero(usual[1:] & usual[:-1])
    return int(together[-1]) + 2 if len(together) else 0


def _was_there(earlier: Floats, level: float, stands: float) -> bool:
    """Whether the loss, once it had come down to its level, has been as high: then it may be so again."""
    size = 5
    blocks = np.median(earlier[len(earlier) % size :].reshape(-1, size), axis=1)
    low = np.flatnonzero(blocks <= level + 0.1 * abs(level))
    since = earlier[len(earlier) % size :][int(low[0]) * size :] if len(low) else earlier
    return bool(np.sort(since)[-min(3, len(since))] >= 0.7 * stands) if len(since) else False


def _before(losses: Floats) -> int:
    """With how many before it a loss is compared."""
    return BEFORE if len(losses) >= 2 * BEFORE else FEWEST_BEFORE


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
