"""Phases on a GPU's clock, with a scripted GPU in the place of one that is not there."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from types import SimpleNamespace

import numpy
import pytest

import stepscope
from stepscope.guard import Guard
from stepscope.steps import device_clock
from stepscope.steps.device_clock import DeviceClock
from stepscope.steps.overhead import Overhead
from stepscope.steps.phase_timer import BACKWARD, DATA, FORWARD, OTHER
from stepscope.steps.ranks.gradients_ready import WAIT_SECONDS

MS = 1_000_000


class ScriptedGpu:
    """A stream that is behind the host by what it has been given to do; both clocks are moved by hand."""

    def __init__(self) -> None:
        self.host_ns = 0
        self.busy_until_ns = 0
        self.is_capturing = False
        self.fails = False
        self.event_ms = 0.0
        """What leaving an event takes the host."""

    def host(self, ms: float) -> int:
        """The host goes on for a while; gives the time it then is."""
        self.host_ns += int(ms * MS)
        return self.host_ns

    def work(self, ms: float) -> None:
        """The host hands over so much work and goes on at once."""
        self.busy_until_ns = max(self.busy_until_ns, self.host_ns) + int(ms * MS)

    def event(self, enable_timing: bool) -> SimpleNamespace:
        assert enable_timing
        event = SimpleNamespace(at_ns=None)

        def record(stream: object) -> None:
            assert stream is self
            if self.fails:
                raise RuntimeError("unspecified launch failure")
            event.at_ns = max(self.busy_until_ns, self.host(self.event_ms))

        event.record = record
        event.query = lambda: self.host_ns >= event.at_ns
        event.synchronize = lambda: self.host(max(0, (event.at_ns - self.host_ns) / MS))
        event.elapsed_time = lambda later: (later.at_ns - event.at_ns) / MS
        return event


@pytest.fixture
def gpu() -> ScriptedGpu:
    return ScriptedGpu()


@pytest.fixture
def rows() -> list[tuple[int, dict[str, float]]]:
    return []


@pytest.fixture
def clock(gpu: ScriptedGpu, rows: list, monkeypatch: pytest.MonkeyPatch) -> DeviceClock:
    monkeypatch.setattr(device_clock, "monotonic_ns", lambda: gpu.host_ns)
    torch = SimpleNamespace(
        cuda=SimpleNamespace(
            Event=gpu.event,
            current_stream=lambda: gpu,
            is_current_stream_capturing=lambda: gpu.is_capturing,
        )
    )
    return DeviceClock(
        torch,
        lambda row, step: rows.append((step, row)),
        Guard(strict=False),
        Overhead(0.005, now_ns=lambda: gpu.host_ns),
        random=lambda: 0.0,
    )


def step(
    gpu: ScriptedGpu, clock: DeviceClock, number: int, data_ms: float = 1.0, work_ms: float = 5.0
) -> None:
    """A step whose host waits for data, hands over forward and backward, and goes on."""
    assert clock.begin_step(DATA, gpu.host_ns)
    clock.stamp(FORWARD, gpu.host(data_ms))
    gpu.work(work_ms)
    clock.stamp(BACKWARD, gpu.host(0.1))
    gpu.work(2 * work_ms)
    clock.stamp(OTHER, gpu.host(0.1))
    clock.end_step(number, gpu.host(0.1))


def test_phases_take_what_they_take_on_the_gpu_and_add_up(gpu, clock, rows) -> None:
    step(gpu, clock, 7)
    clock.read()
    assert rows == [], "The GPU is not there yet, and nobody waits for it."
    gpu.host(100)
    clock.read()
    [(number, row)] = rows
    assert number == 7
    assert row["device/forward_seconds"] == pytest.approx(0.005)
    assert row["device/backward_seconds"] == pytest.approx(0.010)
    parts = sum(row[f"device/{phase}_seconds"] for phase in ("data", "forward", "backward", "other"))
    assert parts == pytest.approx(row["device/step_seconds"])


def test_waiting_for_data_is_exposed_only_where_the_gpu_has_nothing_else_to_do(gpu, clock, rows) -> None:
    for number in range(3):
        step(gpu, clock, number, data_ms=4.0, work_ms=5.0)
    gpu.host(1000)
    clock.read()
    exposed = [row["device/data_seconds"] for _, row in rows]
    assert exposed[0] == pytest.approx(0.004)
    assert exposed[1:] == [pytest.approx(0.0), pytest.approx(0.0)]


def test_the_lag_is_how_far_the_host_is_ahead(gpu, clock, rows) -> None:
    for number in range(3):
        step(gpu, clock, number)
        gpu.host(100)  # the host waits for the GPU, and sees it arrive
        clock.read()
    _, row = rows[-1]
    assert row["lag/data_seconds"] == pytest.approx(0.0, abs=1e-5)
    assert row["lag/backward_seconds"] == pytest.approx(0.0148, abs=1e-4)


def test_what_is_left_of_backward_after_the_last_gradient_is_waiting_for_others(gpu, clock, rows) -> None:
    clock.begin_step(FORWARD, gpu.host_ns)
    clock.stamp(BACKWARD, gpu.host(0.1))
    gpu.work(6)
    clock.mark_ready()
    gpu.work(9)
    clock.stamp(OTHER, gpu.host(0.1))
    clock.end_step(1, gpu.host(0.1))
    gpu.host(100)
    clock.read()
    assert rows[0][1][WAIT_SECONDS] == pytest.approx(0.009)


def test_a_step_without_gradients_has_no_wait(gpu, clock, rows) -> None:
    step(gpu, clock, 1)
    gpu.host(100)
    clock.read()
    assert WAIT_SECONDS not in rows[0][1]


def test_a_graph_that_is_captured_gets_no_events(gpu, clock) -> None:
    gpu.is_capturing = True
    assert not clock.begin_step(DATA, 0)


def test_no_more_steps_are_unread_than_there_are_places(gpu, clock) -> None:
    for number in range(device_clock.MAX_UNREAD):
        step(gpu, clock, number, work_ms=1000.0)
    assert not clock.begin_step(DATA, gpu.host_ns)


def test_a_step_with_too_many_boundaries_is_left_out(gpu, clock, rows) -> None:
    clock.begin_step(DATA, 0)
    for _ in range(device_clock.MAX_BOUNDARIES):
        clock.stamp(FORWARD, gpu.host(0.1))
    clock.end_step(1, gpu.host(0.1))
    gpu.host(100)
    clock.read()
    assert rows == []


def test_events_are_used_again_and_times_hold_when_counted_from_a_new_one(gpu, clock, rows) -> None:
    for number in range(30):
        step(gpu, clock, number)
        gpu.host(1000)
        clock.read()
    assert len({round(row["device/backward_seconds"], 6) for _, row in rows}) == 1
    assert len(clock._free) <= 6


def test_steps_are_chosen_so_that_the_budget_holds(gpu, clock) -> None:
    gpu.event_ms = 0.1
    clock.step_ns = 2 * MS
    clock._random = iter(numpy.random.default_rng(1).random(10_000).tolist()).__next__
    timed = 0
    for number in range(4000):
        clock.left -= 1
        if clock.left <= 0 and clock.begin_step(DATA, gpu.host_ns):
            clock.stamp(FORWARD, gpu.host(1))
            clock.end_step(number, gpu.host(1))
            timed += 1
        else:
            gpu.host(2)
        clock.read()
    cost_ms, whole_ms = timed * 3 * gpu.event_ms, gpu.host_ns / MS
    assert timed > 10
    assert cost_ms / whole_ms < 2 * device_clock.SHARE * 0.005


def test_a_failing_gpu_is_reported_once_and_no_longer_used(gpu, clock, caplog) -> None:
    gpu.fails = True
    with caplog.at_level(logging.WARNING):
        assert not clock.begin_step(DATA, 0)
        assert not clock.begin_step(DATA, 1)
    assert caplog.text.count("Phases are no longer timed on the GPU") == 1


def test_what_is_unread_at_the_end_is_waited_for(gpu, clock, rows) -> None:
    step(gpu, clock, 3)
    clock.flush()
    assert [number for number, _ in rows] == [3]


@pytest.mark.parametrize("pause_s", [0.0, 0.3], ids=["at once", "after a pause"])
def test_steps_of_a_loop_are_timed_on_the_device_from_the_first(
    folder: Path, gpu: ScriptedGpu, monkeypatch: pytest.MonkeyPatch, pause_s: float
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(device_clock, "SHARE", 1.0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: gpu)
    monkeypatch.setattr(torch.cuda, "Event", gpu.event)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    settings = {"recorder": {"max_overhead": 1.0}}
    with stepscope.TrainingMonitor(settings, run="loop", directory=folder, strict=True) as monitor:
        time.sleep(pause_s)
        monitor.watch(model, optimizer)
        for batch in monitor.batches([torch.ones(2, 4)] * 30):
            time.sleep(0.002)
            model(batch).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            gpu.host(1)
    timed = stepscope.open_store(folder).run("loop").series("device/step_seconds")
    assert len(timed) > 20
