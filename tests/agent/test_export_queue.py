"""A remote exporter has a thread and a bounded queue of its own: a broken target harms nothing."""

from __future__ import annotations

import threading
import time
from functools import partial

import pytest

from stepscope.agent.ingest import export_queue
from stepscope.agent.ingest.export_queue import ExportCalls, ExportQueue
from stepscope.exporters.base import Feed, Table, Unreachable


class Remote(Feed):
    is_remote = True

    def __init__(self) -> None:
        self.heard: list[int] = []
        self.failures = 0
        self.error: Exception = ConnectionError("nobody listens")
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.is_closed = False

    def take(self, table: Table) -> None: ...

    def hear(self, number: int) -> None:
        assert self.may_go_on.wait(30)
        if self.failures:
            self.failures -= 1
            raise self.error
        self.heard.append(number)

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_queue, "FIRST_PAUSE_S", 0.001)


def put(queue: ExportQueue, remote: Remote, *numbers: int, values: int = 10) -> None:
    for number in numbers:
        queue.put(partial(remote.hear, number), values)


def test_a_slow_exporter_delays_nobody_and_gets_everything_in_order() -> None:
    remote = Remote()
    remote.may_go_on.clear()
    queue = ExportQueue("remote", remote)
    put(queue, remote, *range(100))
    assert remote.heard == []
    assert queue.status().exported == 0
    remote.may_go_on.set()
    queue.close(30)
    assert remote.heard == list(range(100))
    assert (queue.status().exported, queue.status().waiting, queue.status().dropped) == (1000, 0, 0)
    assert remote.is_closed


def test_what_fails_is_tried_again_and_nothing_after_it_is_lost() -> None:
    remote = Remote()
    remote.failures = 3
    queue = ExportQueue("remote", remote)
    put(queue, remote, 1, 2)
    while queue.status().exported < 20:
        time.sleep(0.001)
    queue.close(30)
    assert remote.heard == [1, 2]
    status = queue.status()
    assert (status.state, status.error, status.dropped) == ("working", "nobody listens", 0)


def test_work_that_always_fails_is_dropped_and_counted_so_that_the_next_gets_its_turn(
    caplog: pytest.LogCaptureFixture,
) -> None:
    remote = Remote()
    remote.error = ValueError("no such metric")
    remote.failures = export_queue.MAX_ATTEMPTS
    queue = ExportQueue("remote", remote)
    put(queue, remote, 1, 2)
    while queue.status().exported < 10:
        time.sleep(0.001)
    queue.close(30)
    assert remote.heard == [2]
    assert queue.status().dropped == 10
    assert caplog.text.count("The exporter remote failed, and is tried again: no such metric") == 1


@pytest.mark.parametrize("error", [ConnectionError("refused"), TimeoutError("late"), Unreachable("down")])
def test_while_the_other_program_cannot_be_reached_nothing_is_dropped(error: Exception) -> None:
    remote = Remote()
    remote.error, remote.failures = error, export_queue.MAX_ATTEMPTS + 2
    queue = ExportQueue("remote", remote)
    put(queue, remote, 1, 2)
    while queue.status().exported < 20:
        time.sleep(0.001)
    queue.close(30)
    assert remote.heard == [1, 2]
    assert queue.status().dropped == 0


def test_a_full_queue_keeps_the_ends_of_runs() -> None:
    remote = Remote()
    remote.may_go_on.clear()
    queue = ExportQueue("remote", remote, max_values=100)
    put(queue, remote, -1, values=0)
    put(queue, remote, *range(100))
    remote.may_go_on.set()
    queue.close(30)
    assert remote.heard[0] == -1
    assert remote.heard[-1] == 99


def test_a_queue_that_is_full_drops_its_oldest_work_and_counts_it() -> None:
    remote = Remote()
    remote.may_go_on.clear()
    queue = ExportQueue("remote", remote, max_values=1000)
    put(queue, remote, *range(1000))
    assert queue.status().waiting < 1000
    remote.may_go_on.set()
    queue.close(30)
    assert remote.heard[-1] == 999
    assert queue.status().dropped + queue.status().exported == 10_000


def test_an_exporter_that_hangs_does_not_hold_up_the_end(caplog: pytest.LogCaptureFixture) -> None:
    remote = Remote()
    remote.may_go_on.clear()
    queue = ExportQueue("remote", remote)
    put(queue, remote, 1, 2)
    queue.close(0.01)
    assert "The exporter remote did not end within 0.01 s: 20 values were not exported." in caplog.text
    status = queue.status()
    assert (status.state, status.exported, status.waiting, status.dropped) == ("failing", 0, 0, 20)
    assert status.error == "It did not end within 0.01 s: 20 values were not exported."
    remote.may_go_on.set()


def test_a_call_that_does_not_return_shows_as_failing() -> None:
    remote = Remote()
    remote.may_go_on.clear()
    now = 0.0
    queue = ExportQueue("remote", remote, now=lambda: now)
    put(queue, remote, 1)
    while queue._called_at is None:
        time.sleep(0.001)
    assert queue.status().state == "working"
    now = export_queue.SLOW_S + 1
    assert (queue.status().state, queue.status().error) == (
        "failing",
        "It has not answered for more than 30 s.",
    )
    remote.may_go_on.set()
    queue.close(30)
    assert queue.status().state == "working"


class Batching(Remote):
    """Holds what it takes."""

    count = 0

    @property
    def held(self) -> int:
        return self.count


def test_values_that_an_exporter_still_holds_count_as_waiting() -> None:
    batching = Batching()
    queue = ExportQueue("batching", batching)
    batching.count = 10
    put(queue, batching, 1, 2, 3)
    queue.begin_close()
    queue._thread.join(30)
    assert (queue.status().exported, queue.status().waiting) == (20, 10)
    batching.count = 0
    assert (queue.status().exported, queue.status().waiting) == (30, 0)


def test_an_exporter_that_says_what_is_in_its_way_is_failing_until_it_says_no_more() -> None:
    class Blocked(Remote):
        reason = "The port is taken."

        @property
        def trouble(self) -> str:
            return self.reason

    blocked = Blocked()
    calls = ExportCalls("blocked", blocked)
    calls.put(lambda: None, 5)
    assert (calls.status().state, calls.status().error) == ("failing", "The port is taken.")
    blocked.reason = ""
    assert calls.status().state == "working"


def test_a_failure_that_repeats_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0

    def fail() -> None:
        raise OSError("The disk is full.")

    calls = ExportCalls("files", Remote(), lambda: now)
    for _ in range(5):
        calls.put(fail, 1)
        now += 100.0
    assert caplog.text.count("The disk is full.") == 1
    assert calls.status().dropped == 5
