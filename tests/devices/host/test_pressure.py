"""Stalls are shares of the time between two looks."""

from __future__ import annotations

from pathlib import Path

from stepscope.devices.host.pressure import Pressure
from tests.devices.written import HandClock, write


def memory_pressure(some_us: int, full_us: int) -> dict[str, str]:
    averages = "avg10=82.93 avg60=83.77 avg300=62.91"
    return {"pressure/memory": f"some {averages} total={some_us}\nfull {averages} total={full_us}\n"}


def test_the_share_is_that_of_the_time_since_the_last_look(tmp_path: Path) -> None:
    clock = HandClock()
    pressure = Pressure("memory", tmp_path, clock)
    write(tmp_path, memory_pressure(1_000_000, 0))
    assert pressure.since_last() == {}
    write(tmp_path, memory_pressure(2_000_000, 500_000))
    clock.now += 2
    assert pressure.since_last() == {"some": 0.5, "full": 0.25}


def test_a_share_is_never_more_than_all_of_the_time(tmp_path: Path) -> None:
    clock = HandClock()
    pressure = Pressure("memory", tmp_path, clock)
    write(tmp_path, memory_pressure(0, 0))
    pressure.since_last()
    write(tmp_path, memory_pressure(1_010_000, 0))
    clock.now += 1
    assert pressure.since_last()["some"] == 1.0


def test_a_kernel_without_pressure_information_reports_nothing(tmp_path: Path) -> None:
    pressure = Pressure("memory", tmp_path, HandClock())
    assert pressure.since_last() == pressure.since_last() == {}
