"""A real training is sampled from the maintenance thread, and one setting switches that off."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import stepscope
from stepscope.guard import Guard
from stepscope.recorder import maintenance_thread
from stepscope.recorder.maintenance_thread import MaintenanceThread

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.usefixtures("without_agent")


def send(loss: float) -> None:
    time.sleep(0.02)


def train(folder: Path, config: dict[str, Any], seconds: float) -> list[Any]:
    """Trains for some time with a loop that waits in each step; returns the events of samples."""
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with stepscope.TrainingMonitor(config, run="case", directory=folder) as monitor:
        monitor.watch(model, optimizer, gradients=False)
        end = time.monotonic() + seconds
        for x in monitor.batches(iter(lambda: torch.randn(8, 4), None)):
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            send(0.0)
            monitor.log_training_step(loss=loss)
            if time.monotonic() > end:
                break
    events = stepscope.open_store(folder).run("case").events("stack_samples")
    return [event for event in events if not event.by_user]


@pytest.mark.slow
def test_the_line_that_waits_in_a_real_training_is_recorded(folder: Path) -> None:
    [event] = train(folder, {"recorder": {"max_overhead": 0.05}}, 8)
    line = event.fields["lines"][0]
    assert line["place"].startswith("test_stack_samples.py:")
    assert line["place"].endswith("in send")
    assert (line["kind"], line["phase"]) == ("sleep", "other")
    assert line["samples"] >= 0.5 * event.fields["samples"]


@pytest.mark.slow
def test_one_setting_switches_sampling_off(folder: Path) -> None:
    assert train(folder, {"recorder": {"max_overhead": 0.05, "escalation": False}}, 3) == []


def test_a_failure_of_sampling_does_not_stop_the_maintenance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance_thread, "PERIOD_S", 0.001)
    drained, messages = threading.Event(), []
    guard = Guard(strict=True)
    monkeypatch.setattr(guard, "tell", messages.append)
    writer: Any = SimpleNamespace(prepare=lambda: None, recover=lambda: None)
    thread = MaintenanceThread(writer, lambda: None, drained.set, lambda: None, guard)

    def fail() -> float:
        raise RuntimeError("no stack")

    thread.sample = fail
    deadline = time.monotonic() + 30
    while not messages and time.monotonic() < deadline:
        drained.wait(0.01)
    drained.clear()
    assert drained.wait(30)
    thread.stop()
    assert messages == ["The stack of the training is no longer sampled: RuntimeError('no stack')"]


def test_frequent_samples_do_not_make_maintenance_more_frequent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance_thread, "PERIOD_S", 0.1)
    sampled, drained = [], []
    is_enough = threading.Event()

    def sample() -> float:
        sampled.append(1)
        return 0.001

    def drain() -> None:
        drained.append(1)
        if len(drained) == 3:
            is_enough.set()

    writer: Any = SimpleNamespace(prepare=lambda: None, recover=lambda: None)
    thread = MaintenanceThread(writer, lambda: None, drain, lambda: None, Guard(strict=True))
    thread.sample = sample
    assert is_enough.wait(30)
    thread.stop()
    assert len(sampled) > 2 * len(drained)
