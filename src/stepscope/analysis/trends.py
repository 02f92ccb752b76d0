"""Fits a robust line to a series: whether it grows, how fast, and whether steadily or in one jump."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from stepscope.analysis.robust import autocorrelation, spread

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Trend:
    """A line through a series: slope per unit of the axis, with its confidence interval."""

    slope: float
    low: float
    high: float
    begin: float
    """Position on the axis at which the line begins."""
    start: float
    """Value of the line at its beginning."""
    end: float
    """Value of the line at its end."""
    noise: float
    """Spread of the values around the line, as a standard deviation."""

    @property
    def growth(self) -> float:
        """Growth from the beginning to the end of the line, as a share of the value at the beginning."""
        return (self.end - self.start) / self.start if self.start > 0 else 0.0


def trend_of(x: Floats, y: Floats, confidence: float = 0.99) -> Trend | None:
    """Returns the Theil-Sen line of a series; None where x does not increase.

    The confidence interval of the slope is that of Kendall's rank correlation, for the effective number of
    values: autocorrelated values count as fewer.
    """
    first, second = np.triu_indices(len(x), 1)
    run = x[second] - x[first]
    if not len(run) or not (run > 0).all():
        return None
    slopes = np.sort((y[second] - y[first]) / run)
    middle = float(np.median(slopes))
    rest = y - middle * x
    offset = float(np.median(rest))
    share = slope_interval(rest, confidence)
    low, high = (-np.inf, np.inf) if share >= 1 else np.quantile(slopes, [(1 - share) / 2, (1 + share) / 2])
    ends = (offset + middle * float(x[0]), offset + middle * float(x[-1]))
    return Trend(middle, float(low), float(high), float(x[0]), *ends, float(spread(rest)))


def is_jump(x: Floats, y: Floats) -> bool:
    """Whether one jump between two levels fits the series better than a line, by Schwarz's criterion."""
    count = len(y)
    line = np.polynomial.Polynomial.fit(x, y, 1)
    sums, squares = np.cumsum(y), np.cumsum(y**2)
    size = np.arange(1, count)
    before = squares[:-1] - sums[:-1] ** 2 / size
    after = (squares[-1] - squares[:-1]) - (sums[-1] - sums[:-1]) ** 2 / (count - size)
    jump = max(float((before + after).min()), 0.0)
    straight = float(((y - line(x)) ** 2).sum())
    # A jump has one parameter more than a line (its place), which the criterion penalises.
    return bool(jump * count ** (1 / count) < straight)


def slope_interval(rest: Floats, confidence: float) -> float:
    """Returns the central share of all pairwise slopes within the interval; 1 or more if it is unbounded.

    `rest` holds the residuals of the line; their autocorrelation reduces the effective number of values.
    """
    correlation = autocorrelation(rest)
    effective = len(rest) * (1 - correlation) / (1 + correlation)
    if effective <= 3:
        return 1.0
    quantile = NormalDist().inv_cdf((1 + confidence) / 2)
    return float(quantile * np.sqrt(2 * (2 * effective + 5) / (9 * effective * (effective - 1))))
