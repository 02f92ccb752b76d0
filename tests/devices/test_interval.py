"""Expensive work is done at an interval."""

from __future__ import annotations

from stepscope.devices.interval import Interval
from tests.devices.written import HandClock


def test_it_is_due_at_once_and_then_after_its_time() -> None:
    clock = HandClock()
    interval = Interval(5.0, clock)
    due = []
    for seconds in (0, 1, 3.9, 0.1, 4.9, 0.1):
        clock.now += seconds
        due.append(interval.is_due())
    assert due == [True, False, False, True, False, True]
