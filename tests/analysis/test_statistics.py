"""The statistics find planted effects and are robust against outliers."""

import numpy as np
import pytest

from stepscope.analysis.change_points import change_point, warm_up_length
from stepscope.analysis.loss.divergence import Start, divergence
from stepscope.analysis.loss.excursions import spikes
from stepscope.analysis.robust import block_edges, block_medians, block_shares, expected_exceedances, spread
from stepscope.analysis.trends import is_line, rise_of, trend_of

CHANCE = np.random.default_rng(0)


def test_a_spread_ignores_outliers():
    values = np.r_[CHANCE.normal(5, 2, 10_000), np.full(500, 1e6)]
    assert spread(values) == pytest.approx(2, rel=0.1)


def test_blocks_have_equal_size_and_leave_out_the_first_values():
    edges = block_edges(103, 10, 5)
    assert edges.tolist() == list(range(3, 104, 10))
    assert block_medians(np.arange(103.0), edges)[0] == 7.5
    assert block_shares(np.ones(103), np.full(103, 4.0), edges).tolist() == [0.25] * 10
    assert block_edges(3, 10, 5).tolist() == [0, 3]
    assert block_edges(399, 200, 1).tolist() == list(range(1, 400, 2))


def test_the_range_of_noise_is_estimated_from_its_tail():
    normal, heavy = np.abs(CHANCE.normal(size=2000)), np.abs(CHANCE.standard_t(2, 2000))
    assert expected_exceedances(normal, 30.0) < 1e-3
    assert expected_exceedances(heavy, 30.0) > 0.1
    assert expected_exceedances(normal[:5], 30.0) == np.inf


def test_a_slope_is_within_its_interval_and_noise_has_none():
    x = np.arange(60.0)
    trend = trend_of(x, 3 + 0.1 * x + CHANCE.normal(0, 0.5, 60))
    assert trend.slope.low < 0.1 < trend.slope.high
    assert (trend.start, trend.end) == (pytest.approx(3, abs=0.4), pytest.approx(8.9, abs=0.4))
    assert trend.slope.low > 0
    assert trend_of(x, CHANCE.normal(0, 0.5, 60)).slope.low < 0
    assert trend_of(np.zeros(5), np.arange(5.0)) is None


def test_autocorrelation_widens_the_interval_of_a_slope():
    x = np.arange(60.0)
    sure = 0
    for seed in range(50):
        wandering = np.cumsum(np.random.default_rng(seed).normal(0, 1, 60))
        trend = trend_of(x, wandering)
        sure += trend.slope.low > 0 or trend.slope.high < 0
    assert sure <= 10, "A random walk has a slope by chance; as independent values nearly all would be sure."


def test_a_jump_is_distinguished_from_a_line():
    x, noise = np.arange(48.0), CHANCE.normal(0, 0.02, 48)
    assert not is_line(x, 1 + 0.5 * (x >= 24) + noise)
    assert is_line(x, 1 + 0.5 * x / 48 + noise)


def test_a_change_of_level_is_found_at_its_place():
    place, worth = change_point(np.r_[CHANCE.normal(1, 0.1, 300), CHANCE.normal(2, 0.1, 700)])
    assert place == 300
    assert worth > 100
    assert change_point(CHANCE.normal(1, 0.1, 1000))[1] < 12
    assert change_point(np.ones(3)) is None


@pytest.mark.parametrize(
    ("head", "length"),
    [
        ([], 0),
        ([60.0], 1),
        ([60.0, 9.0, 3.0, 2.0, 2.0], 5),
        ([1.6] * 40, 40),
        ([30.0] + [2.0] * 25, 26),
    ],
)
def test_a_warm_up_ends_where_the_level_changes(head, length):
    usual = CHANCE.lognormal(0, 0.05, 400)
    assert abs(warm_up_length(np.r_[head, usual]) - length) <= 2


def test_a_single_slow_step_in_the_middle_is_no_warm_up():
    taken = CHANCE.lognormal(0, 0.05, 400)
    taken[150] = 50
    assert warm_up_length(taken) == 0


def test_steps_that_get_slower_have_no_warm_up():
    assert warm_up_length(np.linspace(1, 3, 300)) == 0


def test_a_spike_is_found_and_a_loss_that_stays_high_is_not_a_spike():
    losses = 1 + CHANCE.normal(0, 0.05, 600)
    losses[400:403] += 5
    [found] = spikes(losses, 6.0)
    assert (found.begin, found.end) == (400, 403)
    losses[400:] += 5
    assert spikes(losses, 6.0) == []


def test_a_divergence_begins_where_the_loss_starts_to_rise():
    losses = np.concatenate([2.5 * np.exp(-np.arange(300) / 40) + 0.3, 0.3 * 1.2 ** np.arange(30)])
    losses *= np.exp(np.random.default_rng(0).normal(0, 0.03, 330))
    steps = np.arange(330)
    start = Start(2.8, is_in_window=True)
    excursion = divergence(losses, steps, start)
    assert excursion is not None
    assert excursion.begin in range(298, 306)
    assert divergence(losses, steps, start, least_level=1e6) is None
    back = np.concatenate([losses, losses[-1] * 0.9 ** np.arange(30)])
    assert divergence(back, np.arange(360), start) is None, "It is on its way back."


def test_a_spike_from_which_the_loss_recovers_slowly_is_found():
    losses = 2.3 + CHANCE.normal(0, 0.012, 300)
    losses[200] += 4.8
    losses[201:225] += 0.6 * np.exp(-np.arange(24) / 10)
    [found] = spikes(losses, 6.0)
    assert found.peak == 200


def test_values_that_nearly_always_rise_are_distinguished_from_levels():
    rising = np.linspace(1, 2, 12) + CHANCE.normal(0, 0.02, 12)
    levels = np.repeat([1.0, 2.0, 3.0], 4) + CHANCE.normal(0, 0.02, 12)
    assert rise_of(rising) > 0.9
    assert rise_of(levels) < 0.85
    assert rise_of(rising[::-1]) < -0.9
