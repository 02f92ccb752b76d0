"""Amounts add up exactly, over gaps, resets and edges."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.views.energy.metering import Metered, TimeSpan, from_counter, from_rate, subtract_spans

NS = 10**9
BEGUN_NS = 1_760_000_000 * NS + 123_456_789
HOUR = TimeSpan(BEGUN_NS, BEGUN_NS + 3600 * NS)


def at(seconds: Sequence[float]) -> np.ndarray:
    return BEGUN_NS + np.round(np.asarray(seconds) * NS).astype(np.int64)


def test_100_watts_for_an_hour_are_exactly_100_watt_hours() -> None:
    seconds = np.arange(3600) + 0.5
    metered = from_rate(at(seconds), np.full(3600, 100.0), HOUR)
    assert metered == Metered(360_000.0, 3600.0)


def test_a_ramp_is_integrated_by_trapezoids() -> None:
    seconds = np.arange(11.0)
    metered = from_rate(at(seconds), seconds * 10, TimeSpan(BEGUN_NS, BEGUN_NS + 10 * NS))
    assert metered == Metered(500.0, 10.0)


def test_readings_before_the_start_and_after_the_end_count_only_up_to_them() -> None:
    seconds = np.arange(-5.0, 16.0)
    inside = TimeSpan(BEGUN_NS, BEGUN_NS + 10 * NS + NS // 2)
    assert from_rate(at(seconds), np.full(21, 8.0), inside) == Metered(84.0, 10.5)
    assert from_counter(at(seconds), 8 * (seconds + 5), inside) == Metered(84.0, 10.5)


def test_a_gap_is_left_out_of_power_and_bridged_by_a_counter() -> None:
    seconds = np.r_[np.arange(0.0, 1001.0), np.arange(2000.0, 3601.0)]
    assert from_rate(at(seconds), np.full(len(seconds), 10.0), HOUR) == Metered(26_000.0, 2600.0)
    assert from_counter(at(seconds), 10 * seconds, HOUR) == Metered(36_000.0, 3600.0)


def test_readings_every_ten_minutes_have_no_gaps() -> None:
    seconds = np.arange(0.0, 3601.0, 600.0)
    assert from_rate(at(seconds), np.full(7, 10.0), HOUR) == Metered(36_000.0, 3600.0)


def test_a_late_first_reading_leaves_the_time_before_it_unknown() -> None:
    seconds = np.arange(600.0, 3601.0)
    assert from_rate(at(seconds), np.full(3001, 10.0), HOUR) == Metered(30_000.0, 3000.0)
    assert from_counter(at(seconds), 10 * seconds, HOUR) == Metered(30_000.0, 3000.0)


def test_a_counter_that_restarts_counts_from_its_new_value() -> None:
    seconds = np.arange(101.0)
    shown = np.where(seconds < 50, 5_000_000 + 100 * seconds, 100 * (seconds - 49.5))
    metered = from_counter(at(seconds), shown, TimeSpan(BEGUN_NS, BEGUN_NS + 100 * NS))
    # Half a second's use, from the last look to the reset, was never seen.
    assert metered == Metered(9_950.0, 99.0)


def test_an_implausible_value_after_a_counter_reset_adds_nothing() -> None:
    seconds = np.arange(11.0)
    shown = np.where(seconds < 5, 9e9, 8e9) + seconds
    metered = from_counter(at(seconds), shown, TimeSpan(BEGUN_NS, BEGUN_NS + 10 * NS))
    assert metered == Metered(9.0, 9.0)


def test_values_that_are_not_finite_are_ignored() -> None:
    seconds = np.arange(11.0)
    watts = np.full(11, 10.0)
    watts[4] = np.nan
    assert from_rate(at(seconds), watts, TimeSpan(BEGUN_NS, BEGUN_NS + 10 * NS)) == Metered(100.0, 10.0)


@pytest.mark.parametrize("meter", [from_rate, from_counter])
def test_without_readings_nothing_is_known(meter) -> None:
    nothing = np.empty(0)
    assert meter(nothing.astype(np.int64), nothing, HOUR) == Metered(0.0, 0.0)


def test_one_counter_reading_gives_nothing_and_one_power_reading_a_little() -> None:
    single = np.array([100.0])
    short = TimeSpan(BEGUN_NS, BEGUN_NS + 4 * NS)
    assert from_counter(at([2.0]), single, short) == Metered(0.0, 0.0)
    assert from_rate(at([2.0]), single, short) == Metered(400.0, 4.0)


def test_a_reading_far_outside_does_not_cover_a_short_span() -> None:
    short = TimeSpan(BEGUN_NS, BEGUN_NS + 2 * NS)
    assert from_rate(at([100.0]), np.array([50.0]), short) == Metered(0.0, 0.0)
    assert from_rate(at([-100.0]), np.array([50.0]), short) == Metered(0.0, 0.0)


@given(
    st.lists(st.tuples(st.floats(-20, 120), st.floats(0, 700)), max_size=40),
    st.integers(0, 100),
    st.integers(0, 100),
)
def test_coverage_and_usage_never_exceed_the_span_and_the_highest_rate(
    readings: list[tuple[float, float]], first: int, second: int
) -> None:
    span = TimeSpan(BEGUN_NS + min(first, second) * NS, BEGUN_NS + max(first, second) * NS)
    times = at([seconds for seconds, _ in readings]) if readings else np.empty(0, np.int64)
    watts = np.array([value for _, value in readings])
    metered = from_rate(times, watts, span)
    assert -1e-9 <= metered.covered_seconds <= span.seconds + 1e-6
    assert metered.amount <= max([value for _, value in readings], default=0.0) * span.seconds + 1e-3
    assert metered.amount >= -1e-9


def test_overlapping_spans_are_subtracted() -> None:
    whole, middle = TimeSpan(0, 100), TimeSpan(40, 60)
    assert subtract_spans(whole, [middle]) == [TimeSpan(0, 40), TimeSpan(60, 100)]
    assert subtract_spans(whole, [TimeSpan(90, 200), TimeSpan(-5, 10)]) == [TimeSpan(10, 90)]
    assert subtract_spans(whole, [TimeSpan(200, 300)]) == [whole]
    assert subtract_spans(middle, [whole]) == []
