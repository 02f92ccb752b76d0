"""The change of step times between runs, and the interval that noise does not leave."""

import numpy as np
import pytest

from stepscope.analysis.regression import HIGH_CONFIDENCE, MIN_STEPS, time_change


def steps(seed, seconds=0.1, count=400, noise=0.05, drift=0.0):
    chance = np.random.default_rng(seed)
    level = np.exp(np.cumsum(chance.normal(0, drift, count)))
    outliers = np.where(chance.random(count) < 0.02, 8.0, 1.0)
    return seconds * level * np.exp(chance.normal(0, noise, count)) * outliers


def test_a_change_is_estimated_with_its_interval():
    change = time_change(steps(1, 0.12), [steps(2, 0.1)])
    assert change.ratio == pytest.approx(0.2, abs=0.02)
    assert change.low < change.ratio < change.high
    assert change.high - change.low < 0.05


def test_equal_runs_are_hardly_ever_outside_the_interval():
    changes = [time_change(steps(seed), [steps(1000 + seed)]) for seed in range(200)]
    assert sum(change.low > 0 or change.high < 0 for change in changes) <= 20


def test_steps_that_drift_make_the_interval_wide():
    steady, drifting = steps(1), steps(1, drift=0.01)
    of_steady, of_drifting = (time_change(baseline, [steps(2)]) for baseline in (steady, drifting))
    assert of_drifting.high - of_drifting.low > 3 * (of_steady.high - of_steady.low)


def test_three_baselines_show_the_noise_between_runs():
    machines = [0.1, 0.11, 0.09]
    baselines = [steps(seed, seconds) for seed, seconds in enumerate(machines)]
    alone = time_change(steps(9, 0.11), baselines[:1])
    together = time_change(steps(9, 0.11), baselines)
    assert alone.low > 0.05
    assert together.low < 0 < together.high
    twice = time_change(steps(9, 0.25), baselines)
    assert twice.low > 0.05


@pytest.mark.parametrize("baselines", [1, 4])
def test_a_higher_confidence_has_a_wider_interval_around_the_same_change(baselines):
    others = [steps(seed) for seed in range(2, 2 + baselines)]
    usual, sure = (time_change(steps(1), others, *given) for given in ((), (HIGH_CONFIDENCE,)))
    assert usual.ratio == sure.ratio
    assert sure.low < usual.low < usual.high < sure.high


def test_noise_between_runs_is_assumed_only_where_baselines_do_not_show_it():
    one, several = ([steps(seed) for seed in range(2, 2 + count)] for count in (1, 5))
    noisy = time_change(steps(1), one, run_noise=0.1)
    assert noisy.low < -0.2 < 0.2 < noisy.high
    assert time_change(steps(1), several, run_noise=0.1) == time_change(steps(1), several)


@pytest.mark.parametrize("short", [0, 1])
def test_few_steps_have_no_interval(short):
    counts = [MIN_STEPS, MIN_STEPS]
    assert time_change(*_of(counts)) is not None
    counts[short] -= 1
    assert time_change(*_of(counts)) is None
    assert time_change(steps(1), []) is None


def _of(counts):
    return steps(1, count=counts[0]), [steps(2, count=counts[1])]
