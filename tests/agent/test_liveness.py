"""When a silent training is stalled, and when it works at something that records nothing."""

from pathlib import Path

import pytest

from stepscope import procfs
from stepscope.agent.liveness import ActivityProbe, ProcessLiveness, stall_reason
from stepscope.schema.run import Process
from tests.devices.written import HandClock, process, write

PID, WORKER, TRACKER = 700, 701, 702


class Training:
    """A training process with a loader's worker and a tracker's helper, in a written /proc."""

    def __init__(self, proc: Path) -> None:
        self.proc, self.clock = proc, HandClock()
        self.ticks = {PID: 0, WORKER: 0, TRACKER: 0}
        self.written = {PID: 0, WORKER: 0, TRACKER: 0}
        write(proc, {"loadavg": f"0.1 0.1 0.1 1/100 {TRACKER}\n"})
        self._write()
        probe = ActivityProbe(PID, proc, self.clock)
        mark = procfs.ProcessMark(PID, 100, "boot", "pid:[1]")
        self.liveness = ProcessLiveness(mark, 60, self.clock, is_alive=lambda _: True, probe=probe)
        for _ in range(20):
            self.clock.now += 1
            self.liveness.add_records(1)

    def silent_seconds(self, seconds: int, used: float = 0.0, by: int = PID, written: int = 0) -> list[bool]:
        """Goes on without a record; whether it is called stalled, second by second."""
        stalled = []
        for _ in range(seconds):
            self.clock.now += 1
            self.ticks[by] += round(100 * used)
            self.written[by] += written
            self._write()
            stalled.append(self.liveness.stalled_for() is not None)
        return stalled

    def _write(self) -> None:
        for pid, name, command in (
            (PID, "python", "python train.py"),
            (WORKER, "pt_data_worker", "python train.py"),
            (TRACKER, "tracker", "/usr/bin/tracker"),
        ):
            parent = 1 if pid == PID else PID
            process(self.proc, pid, command, name=name, parent=parent, ticks=(self.ticks[pid], 0))
            write(self.proc, {f"{pid}/io": f"rchar: 9\nwchar: {self.written[pid]}\n"})


@pytest.fixture
def training(tmp_path: Path) -> Training:
    return Training(tmp_path)


def test_a_silent_training_that_does_nothing_is_stalled_after_a_minute(training: Training) -> None:
    stalled = training.silent_seconds(70)
    assert stalled.index(True) in (60, 61)


@pytest.mark.parametrize(
    "work",
    [
        {"used": 0.9},
        {"used": 0.5, "by": WORKER},
        {"written": 120},
        {"written": 40_000_000},
        {"written": 8, "by": WORKER},
    ],
    ids=["an evaluation", "a busy loader", "log lines", "a checkpoint", "batches"],
)
def test_a_silent_training_that_works_for_80_seconds_is_not_stalled(training: Training, work: dict) -> None:
    assert not any(training.silent_seconds(80, **work))


def test_a_training_is_stalled_a_minute_after_its_work_has_ended(training: Training) -> None:
    assert not any(training.silent_seconds(90, used=1.0))
    stalled = training.silent_seconds(120)
    assert 55 <= stalled.index(True) <= 70


@pytest.mark.slow
def test_a_processor_that_spins_is_not_believed_for_ever(training: Training) -> None:
    stalled = training.silent_seconds(900, used=1.0)
    assert 600 <= stalled.index(True) <= 680


def test_what_the_monitor_itself_and_a_tracker_do_is_no_work_of_the_training(training: Training) -> None:
    assert training.silent_seconds(70, used=0.001)[-1]
    training.liveness.add_records(1)
    assert training.silent_seconds(130, written=500, by=TRACKER)[-1]


def test_work_from_before_a_record_does_not_count_for_the_silence_after_it(training: Training) -> None:
    training.silent_seconds(40, used=1.0)
    training.liveness.add_records(1)
    stalled = training.silent_seconds(100)
    assert stalled.index(True) <= 62


def test_a_stall_is_reported_with_the_time_of_the_last_record() -> None:
    stalled = Process("r", "r", "", "1", 0, "host", PID, "rank", started_ns=10**18)
    assert stall_reason(stalled) == "no record since 2001-09-09 01:46:40 UTC"
    stalled.last_ns = 10**18 + 90 * 10**9
    assert stall_reason(stalled) == "no record since 2001-09-09 01:48:10 UTC"
