"""Fits a line by least squares: its slope, how much it explains, and the probability of chance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

TINY = 1e-300
MAX_TERMS = 300


@dataclass(frozen=True)
class LinearFit:
    """A line by least squares through a series."""

    slope: float
    intercept: float
    r_squared: float
    """The share of the variance that the line explains; 0 for a constant series."""
    p_value: float
    """The probability of such a slope by chance if the values were independent; 1 for a constant series."""


def linear_fit(x: Floats, y: Floats) -> LinearFit | None:
    """Returns the line by least squares; None for fewer than three values, or if x does not vary."""
    if len(x) < 3:
        return None
    dx, dy = x - x.mean(), y - y.mean()
    sxx, syy, sxy = float(dx @ dx), float(dy @ dy), float(dx @ dy)
    if sxx <= 0:
        return None
    slope = sxy / sxx
    intercept = float(y.mean()) - slope * float(x.mean())
    if syy <= 0:
        return LinearFit(0.0, intercept, 0.0, 1.0)
    r_squared = min(sxy * sxy / (sxx * syy), 1.0)
    return LinearFit(slope, intercept, r_squared, _chance(r_squared, len(x) - 2))


def _chance(r_squared: float, freedom: int) -> float:
    """The probability of a larger correlation by chance: Student's t distribution, two-sided."""
    if r_squared >= 1:
        return 0.0
    return _incomplete_beta(freedom / 2, 0.5, 1 - r_squared)


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function, by its continued fraction."""
    if x <= 0:
        return 0.0
    if x >= 1:
        return 1.0
    scale = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    if x > (a + 1) / (a + b + 2):  # there the fraction of the complement converges faster
        return 1 - scale * _fraction(b, a, 1 - x) / b
    return scale * _fraction(a, b, x) / a


def _fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function, by Lentz's method."""
    c, d = 1.0, 1 / _not_zero(1 - (a + b) * x / (a + 1))
    result = d
    for m in range(1, MAX_TERMS):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d, c = 1 / _not_zero(1 + term * d), _not_zero(1 + term / c)
            result *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return result


def _not_zero(value: float) -> float:
    return value if abs(value) > TINY else TINY
