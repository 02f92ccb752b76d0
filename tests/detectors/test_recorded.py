"""Runs recorded by a monitor and diagnosed by its agent: findings are stored when the run has ended."""

from __future__ import annotations

import gc
import importlib.util
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import stepscope
from stepscope.recorder import phases, step_log
from stepscope.steps import step_timer

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")


@pytest.fixture
def findings(folder: Path) -> Callable[[str], dict[str, dict]]:
    """Reads the findings of a run, by their ids."""
    return lambda name: {
        finding["id"]: finding for finding in stepscope.open_store(folder).run(name).findings()
    }


class HandClock:
    """A clock that a test moves forward."""

    def __init__(self) -> None:
        self.now = time.monotonic()

    def __call__(self) -> int:
        return int(self.now * 1e9)


def stop_the_clock(monkeypatch: pytest.MonkeyPatch) -> HandClock:
    """Has batches timed by a clock of the test's own."""
    clock = HandClock()
    monkeypatch.setattr(phases, "monotonic_ns", clock)
    monkeypatch.setattr(step_timer, "monotonic_ns", clock)
    monkeypatch.setattr(step_log, "StepTimer", step_timer.PythonStepTimer)
    return clock


def test_a_slow_loader_is_found_at_the_end_of_a_run(folder: Path, findings, monkeypatch) -> None:
    clock = stop_the_clock(monkeypatch)

    def loader() -> Iterator[int]:
        for number in range(100):
            clock.now += 0.03
            yield number

    with stepscope.TrainingMonitor(run="slow", directory=folder) as monitor:
        for number in monitor.batches(loader()):
            clock.now += 0.01
            monitor.log_training_step(loss=1.0 + 0.01 * (number % 7))
    by_id = findings("slow")
    assert by_id.keys() == {"input.exposed_wait"}
    assert by_id["input.exposed_wait"]["share"] == pytest.approx(0.75, abs=0.01)
    assert by_id["input.exposed_wait"]["open"] is True


def test_a_loader_that_keeps_up_is_not_a_finding(folder: Path, findings, monkeypatch) -> None:
    clock = stop_the_clock(monkeypatch)

    def loader() -> Iterator[int]:
        for number in range(100):
            clock.now += 0.0001
            yield number

    with stepscope.TrainingMonitor(run="quick", directory=folder) as monitor:
        for number in monitor.batches(loader()):
            clock.now += 0.01
            monitor.log_training_step(loss=1.0 + 0.01 * (number % 7))
    assert findings("quick") == {}


@pytest.mark.parametrize(
    ("name", "change", "expected"),
    [
        ("nan", lambda losses: losses.__setitem__(slice(200, None), np.nan), "num.nonfinite"),
        ("spike", lambda losses: losses.__setitem__(200, 40.0), "conv.spike"),
        (
            "diverging",
            lambda losses: losses.__setitem__(slice(250, None), 1.2 ** np.arange(50)),
            "conv.diverging",
        ),
    ],
)
def test_a_loss_that_goes_wrong_is_found(folder: Path, findings, name, change, expected) -> None:
    losses = 0.5 + np.random.default_rng(0).normal(0, 0.02, 300)
    change(losses)
    with stepscope.TrainingMonitor(run=name, directory=folder) as monitor:
        for loss in losses.tolist():
            monitor.log_training_step(loss=loss)
    assert findings(name).keys() == {expected}


def lay_out(monitor: stepscope.TrainingMonitor, rows: list[dict[str, float]]) -> None:
    """Records rows at the times their steps would have ended, the last of them now."""
    taken = np.cumsum([row["step_seconds"] for row in rows])
    first_ns = time.monotonic_ns() - int(taken[-1] * 1e9)
    for step, (row, end) in enumerate(zip(rows, taken.tolist(), strict=True)):
        monitor.record_late(row, step, first_ns + int(end * 1e9))


def test_steps_that_slow_down_are_found(folder: Path, findings) -> None:
    noise = np.random.default_rng(0).normal(1, 0.02, 400)
    rows = [{"phase/forward_seconds": 0.02, "phase/other_seconds": 0.01 + 5e-5 * step} for step in range(400)]
    for row, one in zip(rows, noise.tolist(), strict=True):
        row["step_seconds"] = one * sum(row.values())
    with stepscope.TrainingMonitor(run="creep", directory=folder) as monitor:
        lay_out(monitor, rows)
    by_id = findings("creep")
    assert by_id.keys() == {"step.creep"}
    assert "most of it in other" in by_id["step.creep"]["headline"]


def test_garbage_collection_that_pauses_the_training_is_found(folder: Path, findings) -> None:
    rows = [{"step_seconds": 0.02} for _ in range(300)]
    for row in rows[::10]:
        row.update({"step_seconds": 0.03, "gc/pause_seconds": 0.01, "gc/collections": 1.0})
    with stepscope.TrainingMonitor(run="pauses", directory=folder) as monitor:
        lay_out(monitor, rows)
    by_id = findings("pauses")
    assert by_id.keys() == {"host.gc"}
    assert by_id["host.gc"]["share"] == pytest.approx(0.01 / 0.21, abs=0.002)


@needs_torch
def test_an_expensive_loader_of_a_watched_model_gets_a_number_of_workers(folder: Path, findings) -> None:
    import torch

    class Laborious(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return 480

        def __getitem__(self, index: int):
            return torch.tensor([sum(i * i for i in range(8_000)) % 7.0 + index]), torch.tensor([1.0])

    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    with stepscope.TrainingMonitor(run="laborious", directory=folder) as monitor:
        monitor.watch(model, optimizer)
        for x, y in monitor.batches(torch.utils.data.DataLoader(Laborious(), batch_size=8)):
            loss = ((model(x) - y) ** 2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            monitor.log_training_step(loss=0.5)
    finding = findings("laborious")["input.exposed_wait"]
    assert finding["share"] > 0.5
    assert {"workers", "work in a batch"} <= {evidence["label"] for evidence in finding["evidence"]}
    assert any("num_workers=" in (remedy["code"] or "") for remedy in finding["remedies"])


@pytest.mark.slow
@needs_torch
def test_real_collections_in_a_watched_loop_are_found(folder: Path, findings, request) -> None:
    import torch

    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    gc.collect()
    gc.freeze()  # what the tests themselves hold is not to be looked at
    request.addfinalizer(gc.unfreeze)
    held = [[number] for number in range(100_000)]  # but this is, by every collection
    with stepscope.TrainingMonitor(run="collecting", directory=folder) as monitor:
        monitor.watch(model, optimizer)
        for _ in monitor.batches(range(60)):
            loss = model(torch.ones(2, 4)).sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            gc.collect()
            monitor.log_training_step(loss=0.5)
    assert len(held) == 100_000
    finding = findings("collecting")["host.gc"]
    assert finding["share"] > 0.2
    assert finding["severity"] == "warning"
