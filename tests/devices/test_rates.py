"""Counters become rates, and never negative ones."""

from __future__ import annotations

from stepscope.devices.rates import HostRates, Rates
from tests.devices.written import HandClock


def test_the_first_look_has_no_rates_and_the_second_has() -> None:
    clock = HandClock()
    rates: Rates[str] = Rates(clock)
    assert rates.since_last({"sda": {"reads": 100}}) == {}
    clock.now += 4
    assert rates.since_last({"sda": {"reads": 300}}) == {"sda": {"reads": 50.0}}


def test_a_counter_that_went_back_has_no_rate_and_the_next_look_starts_from_it() -> None:
    clock = HandClock()
    rates = HostRates(clock)
    seen = []
    for count in (1000, 10, 30):
        clock.now += 2
        seen.append(rates.since_last({"bytes": count, "steady": 5}))
    assert seen == [{}, {"steady": 0.0}, {"bytes": 10.0, "steady": 0.0}]


def test_a_device_that_was_away_starts_without_a_rate() -> None:
    clock = HandClock()
    rates: Rates[str] = Rates(clock)
    for counts in ({"sda": {"reads": 1}}, {}, {"sda": {"reads": 500}}):
        clock.now += 1
        latest_rates = rates.since_last(counts)
    assert latest_rates == {}


def test_two_looks_at_one_moment_do_not_divide_by_nothing_and_lose_nothing() -> None:
    clock = HandClock()
    rates = HostRates(clock)
    rates.since_last({"bytes": 0})
    assert rates.since_last({"bytes": 50}) == {}
    clock.now += 10
    assert rates.since_last({"bytes": 100}) == {"bytes": 10.0}
