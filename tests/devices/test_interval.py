"""What is dear is done now and then."""

from __future__ import annotations

from stepscope.devices.interval import Interval
from tests.devices.written import HandClock


def test_it_is_due_at_once_and_then_after_its_time() -> None:
    clock = HandClock()
    interval = Interval(5.0, clock)
    seen = []
    for seconds in (0, 1, 3.9, 0.1, 4.9, 0.1):
        clock.now += seconds
        seen.append(interval.is_due())
    assert seen == [True, False, False, True, False, True]
