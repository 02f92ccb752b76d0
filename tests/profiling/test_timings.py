"""Timings with a clock that plays a script."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from stepscope.errors import ConfigError
from stepscope.profiling.model.timings import Repeats, repeated, timings_of


class PlayedClock:
    """A clock that a test moves forward."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def work(self, seconds: Iterable[float]):
        """A function that takes so long at each call."""
        left = iter(seconds)

        def run() -> None:
            self.now += next(left)

        return run


def test_percentiles_mean_and_variation_are_those_of_the_measurements() -> None:
    timings = timings_of([float(value) for value in range(1, 101)])
    assert (timings.count, timings.mean_seconds, timings.p50_seconds) == (100, 50.5, 50.5)
    assert (timings.p95_seconds, timings.p99_seconds) == pytest.approx((95.05, 99.01))
    assert (timings.min_seconds, timings.max_seconds) == (1.0, 100.0)
    assert timings.variation_ratio == pytest.approx(28.866 / 50.5, rel=1e-3)


def test_a_single_measurement_is_all_percentiles() -> None:
    timings = timings_of([0.25])
    assert timings.p50_seconds == timings.p99_seconds == timings.mean_seconds == 0.25
    assert timings.variation_ratio == 0


def test_the_warm_up_is_run_and_not_counted() -> None:
    clock = PlayedClock()
    taken = repeated(clock.work([9, 9, 1, 2, 3]), Repeats(3, warm_up=2, most_seconds=1000), clock)
    assert taken == [1, 2, 3]


def test_measuring_ends_when_its_time_is_over_but_not_before_three_runs() -> None:
    clock = PlayedClock()
    assert repeated(clock.work([6.0] * 100), Repeats(50, 0, most_seconds=10), clock) == [6.0] * 3
    assert len(repeated(clock.work([1.0] * 100), Repeats(50, 0, most_seconds=10), clock)) == 11


def test_a_slow_warm_up_ends_too() -> None:
    clock = PlayedClock()
    repeated(clock.work([60.0] * 4), Repeats(3, warm_up=100, most_seconds=10), clock)
    assert clock.now == 240


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"count": 0}, "count is 0"),
        ({"warm_up": -1}, "warm_up is -1"),
        ({"most_seconds": 0}, "most_seconds is 0"),
    ],
)
def test_a_wrong_number_is_named(given: dict[str, int], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Repeats(**given)
