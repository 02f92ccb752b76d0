"""Finds spikes: losses that jump up and come back.

A loss is compared with the median of earlier losses, in units of their spread. That test alone would report
spikes in every noisy loss, so a spike must also exceed the tail of the run's own noise, and must be large
compared with the loss itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from stepscope.analysis.robust import MAD_TO_SIGMA, autocorrelation, expected_exceedances, usual_range

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

BEFORE = 50
"""Number of earlier losses with which a loss is compared."""

MIN_BEFORE = 20
STRIDE = 5
"""The level is recomputed after this many losses."""

BACK = 5
"""A spike is over after this many usual losses."""

LONGEST_SPIKE = 25
"""A rise that lasts longer is not a spike: it comes from a schedule, or the loss diverges."""

MAX_BY_CHANCE = 1e-3
"""A spike is reported only if the run's noise makes fewer of its size in a window than this."""

MIN_SHARE = 1.0
"""A spike rises by at least this share of the level before it."""

MAX_AUTOCORRELATION = 0.3
"""Above this, losses are smoothed or drift: neighbouring losses are not independent."""

ONE_IN = 400
"""One spike in this many losses is unusual; spikes that are more frequent count as noise."""


@dataclass(frozen=True)
class Excursion:
    """A stretch of losses far above the earlier level; places are indices into the losses of the window."""

    begin: int
    end: int
    """The first place after it."""
    peak: int
    level: float
    """The usual loss before it."""
    value: float
    """The greatest loss in it; for a divergence, the median at its end."""
    deviations: float
    """Distance of that value from the level, in spreads."""


def spikes(losses: Floats, limit: float) -> list[Excursion]:
    """Returns the spikes that are over, oldest first; `limit` is in spreads."""
    if len(losses) < MIN_BEFORE + BACK:
        return []
    begin_at, (levels, sizes) = _before(losses), _levels(losses)
    deviations = (losses - levels) / sizes
    scale = np.maximum(np.abs(levels), 0.25 * usual_range(levels))
    is_high = (deviations > limit) & (losses - levels >= MIN_SHARE * scale)
    is_high[:begin_at] = False  # too few earlier losses to compare with
    if not is_high.any():
        return []
    usual = np.ones(len(losses), bool)
    stretches = list(_stretches(is_high))
    for begin, end in stretches:
        usual[begin:end] = False
    excursions = []
    for begin, end in stretches:
        peak = begin + int(np.argmax(losses[begin:end]))
        after = losses[end : end + 2 * BACK]
        if end - begin > LONGEST_SPIKE or len(after) < BACK:
            continue
        level, size = float(levels[begin]), float(sizes[begin])
        if float(np.median(after)) - level > max(3 * size, 0.2 * (float(losses[peak]) - level)):
            continue  # it stays high, or falls too slowly for the effect of a single batch
        # What follows is the same event until the loss is back: the weights recover in some steps.
        is_other = usual.copy()
        is_other[end : _recovered(deviations, end, 0.5 * limit)] = False
        others = deviations[begin_at:][is_other[begin_at:]]
        # The other stretches count as noise of the run, except for a few that may be spikes too.
        peaks = sorted(float(deviations[low:high].max()) for low, high in stretches if low != begin)
        rest = np.append(others, peaks[: max(len(peaks) - len(losses) // ONE_IN, 0)])
        if _expected_by_chance(rest, deviations[begin:end]) < MAX_BY_CHANCE:
            excursions.append(
                Excursion(begin, end, peak, float(levels[peak]), float(losses[peak]), float(deviations[peak]))
            )
    return excursions


def _recovered(deviations: Floats, end: int, limit: float) -> int:
    """Returns where the losses after a spike are usual again, at most a window of comparison later."""
    after = np.flatnonzero(deviations[end : end + BEFORE] > limit)
    return end + int(after[-1]) + 1 if len(after) else end


def _expected_by_chance(others: Floats, stretch: Floats) -> float:
    """Returns how many stretches like this one the run's own noise would make in a window.

    Uses the greatest loss of the stretch; and where losses are independent, also three losses in a row, each
    as rare as the smallest of them.
    """
    expected = expected_exceedances(others, float(stretch.max()))
    if len(stretch) < 3 or autocorrelation(np.clip(others, -6.0, 6.0)) > MAX_AUTOCORRELATION:
        return expected
    least = np.minimum(np.minimum(stretch[:-2], stretch[1:-1]), stretch[2:]).max()
    # The factor of ten covers the error of the estimate, which the third power multiplies.
    return min(expected, 10 * expected_exceedances(others, float(least)) ** 3 / len(others) ** 2)


def _before(losses: Floats) -> int:
    """Returns with how many earlier losses each loss is compared."""
    return BEFORE if len(losses) >= 2 * BEFORE else MIN_BEFORE


def _levels(losses: Floats) -> tuple[Floats, Floats]:
    """Returns, for each loss, the median of the losses before it and their spread."""
    count, size = len(losses), _before(losses)
    ends = np.arange(size, count, STRIDE)
    views = np.lib.stride_tricks.sliding_window_view(losses, size)[ends - size]
    middles = np.median(views, axis=1)
    sizes = MAD_TO_SIGMA * np.median(np.abs(views - middles[:, None]), axis=1)
    which = np.maximum((np.arange(count) - size) // STRIDE, 0)
    levels, spreads = middles[which], sizes[which]
    return levels, np.maximum(spreads, np.maximum(1e-3 * np.abs(levels), 1e-12))


def _stretches(is_high: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Returns begin and end of each stretch of true places; gaps of up to three places are closed."""
    places = np.flatnonzero(is_high)
    cuts = np.flatnonzero(np.diff(places) > 3)
    begins = places[np.r_[0, cuts + 1]]
    ends = places[np.r_[cuts, len(places) - 1]] + 1
    return list(zip(begins.tolist(), ends.tolist(), strict=True))
