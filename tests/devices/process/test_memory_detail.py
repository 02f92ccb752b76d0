"""Expensive readings stay within a budget."""

from __future__ import annotations

from pathlib import Path

from stepscope.devices.process.memory_detail import BUDGET_RATIO, MAX_BUDGET_S, MemoryDetail
from stepscope.devices.process.processes import ProcessKey
from tests.devices.written import HandClock, write

FIRST, SECOND, THIRD = (ProcessKey(pid, 5) for pid in (10, 11, 12))


class Costly:
    """A clock of processor time that goes on by so much at every reading."""

    def __init__(self, cost_s: float) -> None:
        self._cost_s, self._calls = cost_s, 0

    def __call__(self) -> float:
        self._calls += 1
        return self._calls // 2 * self._cost_s


def written(proc: Path, *keys: ProcessKey) -> None:
    for key in keys:
        write(proc, {f"{key.pid}/smaps_rollup": f"Pss: {key.pid} kB\nPrivate_Dirty: 1 kB\n"})


def test_each_is_read_at_once_and_then_after_the_time_set(tmp_path: Path) -> None:
    clock = HandClock()
    written(tmp_path, FIRST)
    detail = MemoryDetail(10.0, tmp_path, clock, Costly(0.0))
    readings = []
    for seconds in (0, 5, 5, 9, 1):
        clock.now += seconds
        readings.append(list(detail.read_due([FIRST])))
    assert readings == [[FIRST], [], [FIRST], [], [FIRST]]


def test_those_that_cannot_be_afforded_wait_and_come_first_then(tmp_path: Path) -> None:
    clock = HandClock()
    written(tmp_path, FIRST, SECOND, THIRD)
    detail = MemoryDetail(1.0, tmp_path, clock, Costly(1.2 * MAX_BUDGET_S))
    readings = []
    for _ in range(4):
        readings.append(list(detail.read_due([FIRST, SECOND, THIRD])))
        clock.now += 1.5 * MAX_BUDGET_S / BUDGET_RATIO
    assert readings == [[FIRST], [SECOND], [THIRD], [FIRST]]


def test_a_very_large_process_is_read_again_only_within_the_budget(tmp_path: Path) -> None:
    clock = HandClock()
    written(tmp_path, FIRST)
    detail = MemoryDetail(10.0, tmp_path, clock, Costly(1.0))
    assert detail.read_due([FIRST])
    clock.now += 0.9 / BUDGET_RATIO
    assert not detail.read_due([FIRST])
    clock.now += 0.2 / BUDGET_RATIO
    assert detail.read_due([FIRST])


def test_what_may_not_be_read_is_unknown_and_what_has_ended_is_forgotten(tmp_path: Path) -> None:
    clock = HandClock()
    written(tmp_path, FIRST)
    detail = MemoryDetail(10.0, tmp_path, clock, Costly(0.0))
    shares = detail.read_due([FIRST, SECOND])
    assert list(shares) == [FIRST]
    assert detail.known(SECOND) is None
    assert detail.known(FIRST) == shares[FIRST]
    detail.read_due([SECOND])
    assert detail.known(FIRST) is None
