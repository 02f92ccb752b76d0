"""Slopes and their confidence intervals."""

from __future__ import annotations

import numpy as np
import pytest

from stepscope.analysis.robust import block_edges, block_medians, block_quantiles
from stepscope.analysis.trends import is_line, rank_trend, slope_of


def noise(count: int, seed: int, size: float = 1.0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.0, size, count)


def lower_quartiles(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The lower quartile of each of 200 blocks at most, and its middle."""
    edges = block_edges(len(y), 200, 1)
    return block_quantiles(y, edges, 0.25), block_medians(np.arange(float(len(y))), edges)


def test_a_straight_line_has_its_slope_exactly() -> None:
    x = np.arange(50.0)
    slope = slope_of(x, 8e9 + 3.0 * x)
    assert slope is not None
    assert (slope.value, slope.low, slope.high) == pytest.approx((3.0, 3.0, 3.0))


def test_the_interval_contains_the_true_slope_as_often_as_it_claims() -> None:
    x = np.arange(80.0)
    held = 0
    for seed in range(400):
        slope = slope_of(x, 0.5 * x + noise(80, seed, 4.0))
        assert slope is not None
        held += slope.low <= 0.5 <= slope.high
    assert held >= 388  # 99%, less what chance allows


def test_outliers_hardly_change_the_slope() -> None:
    x = np.arange(100.0)
    y = 2.0 * x + noise(100, 1)
    y[::10] += 1e6
    slope = slope_of(x, y)
    assert slope is not None
    assert slope.value == pytest.approx(2.0, rel=0.05)


def test_correlated_readings_widen_the_interval() -> None:
    x = np.arange(200.0)
    independent = slope_of(x, noise(200, 3))
    wandering = slope_of(x, np.convolve(noise(219, 3), np.ones(20), "valid") / np.sqrt(20))
    assert independent is not None
    assert wandering is not None
    assert wandering.high - wandering.low > 2 * (independent.high - independent.low)


def test_without_an_increasing_axis_there_is_no_slope() -> None:
    assert slope_of(np.zeros(10), np.arange(10.0)) is None


def test_a_step_axis_that_goes_back_is_allowed() -> None:
    steps = np.r_[np.arange(50.0), np.arange(30.0, 80.0)]
    slope = slope_of(steps, 2.0 * steps)
    assert slope is not None
    assert slope.value == pytest.approx(2.0)


@pytest.mark.parametrize("count", [10, 200, 201, 999, 36_000])
def test_a_long_series_is_cut_into_equal_blocks(count: int) -> None:
    x = np.arange(float(count))
    levels, places = lower_quartiles(5.0 * x)
    assert len(levels) == len(places) <= 200
    assert len(levels) >= min(count, 100)
    slope = slope_of(places, levels)
    assert slope is not None
    assert slope.value == pytest.approx(5.0)


def test_blocks_of_a_constant_series_have_no_slope() -> None:
    for count in (201, 300, 399, 5000):
        levels, places = lower_quartiles(noise(count, count))
        slope = slope_of(places, levels)
        assert slope is not None
        assert slope.low <= 0 <= slope.high


def test_jumps_are_distinguished_from_a_line() -> None:
    x = np.arange(150.0)
    assert is_line(x, x + noise(150, 5, 20.0))
    assert is_line(x, x)
    assert not is_line(x, np.where(x > 60, 100.0, 0.0) + noise(150, 5))
    assert not is_line(x, np.where(x > 50, 100.0, 0.0) + np.where(x > 100, 60.0, 0.0) + noise(150, 5))


def test_ranks_show_a_trend_of_any_shape_and_none_in_noise() -> None:
    x = np.arange(100.0)
    growing = rank_trend(x, np.exp(x / 10))
    assert (growing.tau, growing.p_value < 1e-9) == (1.0, True)
    falling = rank_trend(x, -np.sqrt(x))
    assert falling.tau == -1.0
    sure = [
        rank_trend(x, np.random.default_rng(seed).normal(0, 1, 100)).p_value < 0.05 for seed in range(200)
    ]
    assert sum(sure) <= 20


def test_values_that_depend_on_each_other_count_as_fewer_for_ranks() -> None:
    x, sure = np.arange(100.0), 0
    for seed in range(100):
        noise = np.random.default_rng(seed).normal(0, 1, 109)
        sure += rank_trend(x, np.convolve(noise, np.ones(10), "valid")).p_value < 0.05
    assert sure <= 15, "As independent values, more than half would be sure."


def test_equal_values_have_no_trend_by_ranks_and_too_few_are_not_tested() -> None:
    assert rank_trend(np.arange(9.0), np.ones(9)).p_value == 1.0
    assert rank_trend(np.arange(2.0), np.arange(2.0)) is None
    assert rank_trend(np.zeros(9), np.arange(9.0)) is None
