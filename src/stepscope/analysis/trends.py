"""Tells whether a series grows, how fast, and whether it does so steadily or by a jump."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from stepscope.analysis.robust import likeness, spread

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Trend:
    """Growth for each unit of the axis, and the bounds it surely lies in."""

    slope: float
    low: float
    high: float
    begin: float
    """The place on the axis at which the line begins."""
    start: float
    """Its value there."""
    end: float
    """Its value at its end."""
    noise: float
    """How far the values stray from it, as a standard deviation."""

    @property
    def growth(self) -> float:
        """How much it has grown from its beginning, as a share of that."""
        return (self.end - self.start) / self.start if self.start > 0 else 0.0


def trend_of(x: Floats, y: Floats, confidence: float = 0.99) -> Trend | None:
    """The line through the medians of slopes and places (Theil and Sen); None where x does not rise.

    Its bounds are those of Kendall's rank correlation, for as many values as the series is worth: one that
    strays slowly is worth less than it has.
    """
    first, second = np.triu_indices(len(x), 1)
    run = x[second] - x[first]
    if not len(run) or not (run > 0).all():
        return None
    slopes = np.sort((y[second] - y[first]) / run)
    middle = float(np.median(slopes))
    rest = y - middle * x
    offset = float(np.median(rest))
    reach = reach_of(rest, confidence)
    low, high = (-np.inf, np.inf) if reach >= 1 else np.quantile(slopes, [(1 - reach) / 2, (1 + reach) / 2])
    ends = (offset + middle * float(x[0]), offset + middle * float(x[-1]))
    return Trend(middle, float(low), float(high), float(x[0]), *ends, float(spread(rest)))


def is_jump(x: Floats, y: Floats) -> bool:
    """Whether one jump between two levels tells the series better than a line does, told as sparingly."""
    count = len(y)
    line = np.polynomial.Polynomial.fit(x, y, 1)
    sums, squares = np.cumsum(y), np.cumsum(y**2)
    size = np.arange(1, count)
    before = squares[:-1] - sums[:-1] ** 2 / size
    after = (squares[-1] - squares[:-1]) - (sums[-1] - sums[:-1]) ** 2 / (count - size)
    jump = max(float((before + after).min()), 0.0)
    straight = float(((y - line(x)) ** 2).sum())
    # A jump has a place besides two levels, and has to pay for it (Schwarz's criterion).
    return bool(jump * count ** (1 / count) < straight)


def reach_of(rest: Floats, confidence: float) -> float:
    """The share of all pairs of values whose slopes lie within the bounds; 1 or more where none are certain.

    `rest` is what a line leaves of the series: the more alike neighbours are in it, the fewer it counts as.
    """
    alike = likeness(rest)
    worth = len(rest) * (1 - alike) / (1 + alike)
    if worth <= 3:
        return 1.0
    sure = NormalDist().inv_cdf((1 + confidence) / 2)
    return float(sure * np.sqrt(2 * (2 * worth + 5) / (9 * worth * (worth - 1))))
