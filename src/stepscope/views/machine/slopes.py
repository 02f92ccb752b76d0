"""Estimates how fast a series grows, with a confidence interval that holds for any kind of noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from stepscope.analysis.trends import slope_interval

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

CONFIDENCE = 0.99

MAX_BLOCKS = 200
"""A longer series is cut into this many blocks: the number of pairs of points grows quadratically."""

MIN_RANGE_READINGS, MIN_RANGE_RATIO = 15, 3.0
"""With this many readings, growth of this many times the range of the residuals is certain."""


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


def slope_of(x: Floats, y: Floats, confidence: float = CONFIDENCE) -> Slope | None:
    """Returns the median slope over all pairs of points (Theil and Sen); None if x does not increase.

    The interval is that of Kendall's rank correlation. Correlated neighbours count as fewer readings.
    """
    first, second = np.triu_indices(len(x), 1)
    distances = x[second] - x[first]
    is_increasing = distances > 0
    if not is_increasing.any():
        return None
    slopes = np.sort((y[second] - y[first])[is_increasing] / distances[is_increasing])
    median = float(np.median(slopes))
    residuals = y - median * x
    pair_share = slope_interval(residuals, confidence)
    if pair_share >= 1:
        return _by_range(median, x, residuals)
    low, high = np.quantile(slopes, [(1 - pair_share) / 2, (1 + pair_share) / 2])
    return Slope(median, float(low), float(high))


def _by_range(median: float, x: Floats, residuals: Floats) -> Slope:
    """Returns an interval for readings so correlated that their ranks say nothing.

    A random walk has residuals about as large as its movement. Residuals far smaller than that mean growth: a
    leak of varying speed leaves a smooth wave.
    """
    if len(x) < MIN_RANGE_READINGS:
        return Slope(median, -np.inf, np.inf)
    slack = MIN_RANGE_RATIO * float(np.ptp(residuals)) / float(x[-1] - x[0])
    return Slope(median, median - slack, median + slack)


def lower_quartiles(y: Floats, *axes: Floats, max_blocks: int = MAX_BLOCKS) -> tuple[Floats, ...]:
    """Returns the lower quartile of each block, and its middle on each axis; spikes have little effect."""
    if len(y) <= max_blocks:
        return (y, *axes)
    width = -(-len(y) // max_blocks)
    # All blocks have the same size, because the quartile of a smaller block is biased: the first readings are
    # dropped.
    spare = len(y) % width
    levels = np.quantile(y[spare:].reshape(-1, width), 0.25, axis=1)
    return (levels, *(axis[spare:].reshape(-1, width).mean(axis=1) for axis in axes))


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
