"""How the training thread spends its time on the host."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from stepscope.steps.evidence.thread_time import ThreadTime

MS = 1_000_000


class Host:
    """A kernel that says what a test makes it say."""

    def __init__(self, proc: Path) -> None:
        self.now_ns = self.busy_ns = 1
        self.switches, self.faults = 10, 3
        folder = proc / "self" / "task" / str(threading.get_native_id())
        folder.mkdir(parents=True)
        self.schedstat = folder / "schedstat"
        self.tell(queued_ns=0)

    def tell(self, queued_ns: int) -> None:
        self.schedstat.write_text(f"{self.busy_ns} {queued_ns} 5\n")

    def pass_time(self, ms: int, busy_ms: int) -> None:
        self.now_ns += ms * MS
        self.busy_ns += busy_ms * MS


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def thread_of(host: Host, proc: Path) -> ThreadTime:
    return ThreadTime(
        proc,
        now_ns=lambda: host.now_ns,
        busy_ns=lambda: host.busy_ns,
        usage=lambda: (host.switches, host.faults),
    )


def test_the_first_reading_has_no_values(host: Host, tmp_path: Path) -> None:
    thread = thread_of(host, tmp_path)
    assert thread.read(1) == {}
    thread.close()


def test_the_cpu_share_covers_the_time_since_the_last_reading(host: Host, tmp_path: Path) -> None:
    thread = thread_of(host, tmp_path)
    thread.read(1)
    host.pass_time(10, busy_ms=4)
    assert thread.read(1)["host/cpu_ratio"] == pytest.approx(0.4)
    host.pass_time(5, busy_ms=5)
    assert thread.read(1)["host/cpu_ratio"] == pytest.approx(1.0)
    thread.close()


def test_waiting_for_a_core_is_a_mean_over_the_steps_since_the_last_reading(
    host: Host, tmp_path: Path
) -> None:
    thread = thread_of(host, tmp_path)
    thread.read(1)
    host.pass_time(40, busy_ms=32)
    host.tell(queued_ns=8 * MS)
    assert thread.read(4)["host/queued_seconds"] == pytest.approx(0.002)
    host.pass_time(10, busy_ms=10)
    assert thread.read(1)["host/queued_seconds"] == 0
    thread.close()


def test_switches_and_faults_are_counted_up(host: Host, tmp_path: Path) -> None:
    thread = thread_of(host, tmp_path)
    thread.read(1)
    host.pass_time(10, busy_ms=8)
    host.switches += 4
    figures = thread.read(1)
    assert (figures["host/involuntary_switches_total"], figures["host/major_faults_total"]) == (14.0, 3.0)
    thread.close()


@pytest.mark.parametrize("kept", [None, "0 0 0\n"], ids=["no file", "no accounts"])
def test_a_kernel_that_keeps_no_accounts_costs_one_figure_alone(
    kept: str | None, host: Host, tmp_path: Path
) -> None:
    if kept is None:
        host.schedstat.unlink()
    else:
        host.schedstat.write_text(kept)
    thread = thread_of(host, tmp_path)
    thread.read(1)
    host.pass_time(10, busy_ms=8)
    figures = thread.read(1)
    assert "host/queued_seconds" not in figures
    assert figures["host/cpu_ratio"] == pytest.approx(0.8)
    assert "host/major_faults_total" in figures
    thread.close()


def test_counting_restarts_when_the_training_moves_to_another_thread() -> None:
    thread = ThreadTime()
    thread.read(1)
    rows: list = []

    def train() -> None:
        rows.append(thread.read(1))
        rows.append(thread.read(1))

    other = threading.Thread(target=train)
    other.start()
    other.join()
    assert rows[0] == {}
    assert "host/cpu_ratio" in rows[1]
    thread.close()


def test_counting_restarts_in_a_thread_that_takes_the_place_of_one_that_ended() -> None:
    thread = ThreadTime()
    rows: list = []
    for _ in range(3):  # each is likely to have the identity of the last one
        other = threading.Thread(target=lambda: rows.extend((thread.read(1), thread.read(1))))
        other.start()
        other.join()
    assert rows[0::2] == [{}, {}, {}]
    assert all("host/cpu_ratio" in row for row in rows[1::2])
    thread.close()


def test_the_real_kernel_distinguishes_a_busy_thread_from_a_sleeping_one() -> None:
    thread = ThreadTime()
    thread.read(1)
    until = time.thread_time() + 0.05
    while time.thread_time() < until:
        pass
    busy = thread.read(1)
    threading.Event().wait(0.05)
    waiting = thread.read(1)
    assert busy["host/cpu_ratio"] > 5 * waiting["host/cpu_ratio"]
    assert busy["host/queued_seconds"] >= 0
    thread.close()
