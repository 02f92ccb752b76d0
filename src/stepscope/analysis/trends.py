"""Fits a robust line to a series: how fast it grows, how certain that is, and whether in jumps."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from stepscope.analysis.robust import autocorrelation, spread

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

CONFIDENCE = 0.99

MAX_CORRELATION = 0.99

MIN_RANGE_READINGS, MIN_RANGE_RATIO = 15, 3.0
"""With this many values, growth of this many times the range of the residuals is certain."""


@dataclass(frozen=True)
class Slope:
    """Growth per unit of the axis, with its confidence interval; infinite if nothing is certain."""

    value: float
    low: float
    high: float

    def times(self, factor: float) -> Slope:
        """Returns the slope for another unit."""
        return Slope(self.value * factor, self.low * factor, self.high * factor)

    def agrees_with(self, other: Slope) -> bool:
        """Returns whether both intervals overlap, with some slack."""
        slack = 0.05 * max(abs(self.value), abs(other.value))
        return max(self.low, other.low) <= min(self.high, other.high) + slack


@dataclass(frozen=True)
class Trend:
    """A line through a series."""

    slope: Slope
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


def median_slope(x: Floats, y: Floats) -> float | None:
    """Returns the median slope over all pairs of points (Theil and Sen); None if x does not increase."""
    slopes = _pair_slopes(x, y)
    return float(np.median(slopes)) if len(slopes) else None


def slope_of(x: Floats, y: Floats, confidence: float = CONFIDENCE) -> Slope | None:
    """Returns the median slope with its confidence interval; None if x does not increase.

    The interval is that of Kendall's rank correlation, for the effective number of values: autocorrelated
    values count as fewer.
    """
    slopes = _pair_slopes(x, y)
    if not len(slopes):
        return None
    middle = float(np.median(slopes))
    residuals = y - middle * x
    pair_share = _interval(residuals, confidence)
    if pair_share >= 1:
        return _by_range(middle, x, residuals)
    low, high = np.quantile(slopes, [(1 - pair_share) / 2, (1 + pair_share) / 2])
    return Slope(middle, float(low), float(high))


@dataclass(frozen=True)
class RankTrend:
    """Whether a series rises or falls, by the ranks of its values (Mann and Kendall)."""

    tau: float
    """From -1, where every later value is smaller, to 1."""
    p_value: float
    """The probability of such a tau by chance, where autocorrelated values count as fewer."""


def rank_trend(x: Floats, y: Floats) -> RankTrend | None:
    """Tests a series for a trend of any shape; None for too few values, or if x does not increase."""
    slopes = _pair_slopes(x, y)
    count = len(y)
    if count < 3 or not len(slopes):
        return None
    score = float(np.sign(slopes).sum())
    _, ranks, tied = np.unique(y, return_inverse=True, return_counts=True)
    variance = (
        count * (count - 1) * (2 * count + 5) - float((tied * (tied - 1) * (2 * tied + 5)).sum())
    ) / 18
    # By ranks as well, or the shape of a trend would count as noise.
    residuals = ranks - float(np.median(_pair_slopes(x, ranks.astype(np.float64)))) * x
    correlation = min(autocorrelation(residuals), MAX_CORRELATION)
    variance *= (1 + correlation) / (1 - correlation)
    # A sum of signs is a whole number, so half of its step is taken off.
    distance = max(abs(score) - 1, 0.0) / np.sqrt(variance) if variance > 0 else 0.0
    return RankTrend(score / len(slopes), 2 * NormalDist().cdf(-distance))


def trend_of(x: Floats, y: Floats, confidence: float = CONFIDENCE) -> Trend | None:
    """Returns the line with the median slope through a series; None if x does not increase."""
    slope = slope_of(x, y, confidence)
    if slope is None:
        return None
    residuals = y - slope.value * x
    offset = float(np.median(residuals))
    ends = (offset + slope.value * float(x[0]), offset + slope.value * float(x[-1]))
    return Trend(slope, float(x[0]), *ends, float(spread(residuals)))


def rise_of(y: Floats) -> float:
    """Returns how much more often a later value is greater than an earlier one, from -1 to 1 (Kendall)."""
    first, second = np.triu_indices(len(y), 1)
    return float(np.sign(y[second] - y[first]).mean()) if len(first) else 0.0


def is_line(x: Floats, y: Floats) -> bool:
    """Returns whether a line fits the series better than one or two jumps between constant levels.

    The models are compared by their residuals and their number of parameters (Schwarz's criterion, BIC).
    """
    count = len(y)
    line = np.polynomial.Polynomial.fit(x, y, 1)
    # Residuals below the rounding error of the values count as none.
    min_residual = count * float(np.finfo(np.float64).eps * np.abs(y).max()) ** 2 + np.finfo(np.float64).tiny
    one_jump, two_jumps = _best_jumps(y)
    unexplained = {2: float(((y - line(x)) ** 2).sum()), 3: one_jump, 5: two_jumps}
    criteria = {
        parameters: count * np.log(max(residual, min_residual) / count) + parameters * np.log(count)
        for parameters, residual in unexplained.items()
    }
    return bool(criteria[2] <= min(criteria[3], criteria[5]))


def _pair_slopes(x: Floats, y: Floats) -> Floats:
    first, second = np.triu_indices(len(x), 1)
    distances = x[second] - x[first]
    is_increasing = distances > 0
    slopes: Floats = (y[second] - y[first])[is_increasing] / distances[is_increasing]
    return slopes


def _interval(residuals: Floats, confidence: float) -> float:
    """Returns the central share of all pairwise slopes within the interval; 1 or more if it is unbounded."""
    correlation = autocorrelation(residuals)
    effective = len(residuals) * (1 - correlation) / (1 + correlation)
    if effective <= 3:
        return 1.0
    quantile = NormalDist().inv_cdf((1 + confidence) / 2)
    return float(quantile * np.sqrt(2 * (2 * effective + 5) / (9 * effective * (effective - 1))))


def _by_range(middle: float, x: Floats, residuals: Floats) -> Slope:
    """Returns an interval for values so correlated that their ranks say nothing.

    A random walk has residuals about as large as its movement. Residuals far smaller than that mean growth: a
    leak of varying speed leaves a smooth wave.
    """
    if len(x) < MIN_RANGE_READINGS:
        return Slope(middle, -np.inf, np.inf)
    slack = MIN_RANGE_RATIO * float(np.ptp(residuals)) / float(x[-1] - x[0])
    return Slope(middle, middle - slack, middle + slack)


def _best_jumps(y: Floats) -> tuple[float, float]:
    """Returns the squared residuals of the best model with one jump, and with two."""
    costs = _level_costs(y)
    one_jump = costs[0, :-1] + costs[1:, -1]
    two_jumps = costs[0, :-2, None] + costs[1:-1, 1:-1] + costs[None, 2:, -1]
    return float(one_jump.min()), float(two_jumps[np.triu_indices(len(two_jumps))].min())


def _level_costs(y: Floats) -> Floats:
    """Returns, for each first and last position, the squared residuals of a constant level between them."""
    centred = y - y.mean()
    sums, squares = np.r_[0.0, centred.cumsum()], np.r_[0.0, (centred**2).cumsum()]
    first, last = np.arange(len(y))[:, None], np.arange(len(y))[None, :] + 1
    length = np.maximum(last - first, 1)
    costs: Floats = squares[last] - squares[first] - (sums[last] - sums[first]) ** 2 / length
    return np.maximum(costs, 0.0)
