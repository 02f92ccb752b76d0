"""The line by least squares, and the probability of its slope by chance."""

from __future__ import annotations

import math

import numpy as np
import pytest

from stepscope.analysis.linear_fit import linear_fit


def chance_by_integration(r_squared: float, freedom: int) -> float:
    """Two tails of Student's t distribution, summed up numerically."""
    t = math.sqrt(freedom * r_squared / (1 - r_squared))
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(freedom * math.pi)
    x = np.linspace(0, t, 200_001)
    density = scale * (1 + x**2 / freedom) ** (-(freedom + 1) / 2)
    return 1 - 2 * float(np.trapezoid(density, x) if hasattr(np, "trapezoid") else np.trapz(density, x))


@pytest.mark.parametrize("count", [3, 4, 10, 57, 400])
@pytest.mark.parametrize("slope", [0.0, 0.01, -0.05, 0.3])
def test_slope_and_chance_are_those_of_the_definition(count: int, slope: float) -> None:
    x = 1.7e9 + np.arange(count, dtype=float)
    y = slope * np.arange(count) + np.random.default_rng(count).normal(0, 1, count)
    fit = linear_fit(x, y)
    assert fit is not None
    expected = np.polynomial.Polynomial.fit(x - x[0], y, 1).convert().coef
    assert fit.slope == pytest.approx(expected[1], rel=1e-6)
    assert fit.intercept + fit.slope * x[0] == pytest.approx(expected[0], rel=1e-5, abs=1e-6)
    assert fit.r_squared == pytest.approx(np.corrcoef(x - x[0], y)[0, 1] ** 2)
    assert fit.p_value == pytest.approx(chance_by_integration(fit.r_squared, count - 2), abs=1e-8)


def test_a_perfect_line_has_no_chance_and_a_constant_one_has_no_slope() -> None:
    x = np.arange(10.0)
    perfect, constant = linear_fit(x, 3 * x), linear_fit(x, np.full(10, 2.0))
    assert perfect is not None
    assert constant is not None
    assert (perfect.slope, perfect.p_value) == (3.0, 0.0)
    assert (constant.slope, constant.r_squared, constant.p_value) == (0.0, 0.0, 1.0)


def test_too_few_values_or_one_place_have_no_line() -> None:
    assert linear_fit(np.arange(2.0), np.arange(2.0)) is None
    assert linear_fit(np.ones(5), np.arange(5.0)) is None
