"""`log_loss`, which trainers call, records what `log_training_step` would record."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import stepscope

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.usefixtures("without_agent")

KEYS = ("loss", "learning_rate", "epoch")


def watched(folder: Path) -> tuple[stepscope.TrainingMonitor, torch.nn.Module, torch.optim.Optimizer]:
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    monitor = stepscope.TrainingMonitor(run="losses", directory=folder)
    monitor.watch(model, optimizer)
    return monitor, model, optimizer


def recorded(folder: Path) -> dict[str, list[tuple[int, float]]]:
    run = stepscope.open_store(folder).run("losses")
    series = {key: run.series(key) for key in KEYS}
    return {
        key: list(zip(one.steps.tolist(), one.values.tolist(), strict=True)) for key, one in series.items()
    }


def test_each_step_has_its_loss_its_rate_and_its_epoch(folder: Path) -> None:
    monitor, model, optimizer = watched(folder)
    losses = []
    for step in range(6):
        loss = model(torch.randn(4, 4)).square().mean()
        loss.backward()
        optimizer.step()
        monitor.log_loss(loss, 0.01 * step, step // 2)
        losses.append(loss.item())
    monitor.stop_monitoring()
    assert recorded(folder) == {
        "loss": list(enumerate(losses)),
        "learning_rate": [(step, 0.01 * step) for step in range(6)],
        "epoch": [(step, step // 2) for step in range(6)],
    }
    assert monitor.get_training_stats()["total_steps"] == 6
    assert monitor.get_training_stats()["min_loss"] == min(losses)


@pytest.mark.parametrize(
    ("loss", "rate"),
    [
        (torch.tensor(0.5, requires_grad=True), 0.25),
        (torch.tensor([0.5]), 0.25),
        (torch.tensor(0.5), torch.tensor(0.25)),
        (np.float64(0.5), 0.25),
        (torch.tensor(0.5, dtype=torch.float16), 0.25),
        (0.5, np.float32(0.25)),
    ],
)
def test_a_loss_and_a_rate_may_be_tensors_or_numbers(folder: Path, loss, rate) -> None:
    monitor, model, optimizer = watched(folder)
    for _ in range(2):
        model(torch.randn(4, 4)).square().mean().backward()
        optimizer.step()
        monitor.log_loss(loss, rate, 3)
    monitor.stop_monitoring()
    assert recorded(folder) == {
        "loss": [(0, 0.5), (1, 0.5)],
        "learning_rate": [(0, 0.25), (1, 0.25)],
        "epoch": [(0, 3.0), (1, 3.0)],
    }


@pytest.mark.parametrize("loss", [None, "high", object(), torch.zeros(2, 2), torch.tensor(1j), {}])
def test_an_odd_loss_is_not_raised_into_the_training(folder: Path, loss) -> None:
    monitor, model, optimizer = watched(folder)
    for _ in range(3):
        model(torch.randn(4, 4)).square().mean().backward()
        optimizer.step()
        monitor.log_loss(loss, 0.1, 0)
    monitor.stop_monitoring()
    assert len(stepscope.open_store(folder).run("losses").series("step_seconds")) == 3


def test_rules_see_every_loss(folder: Path) -> None:
    values: list[float] = []

    def is_seen(metrics) -> bool:
        values.append(metrics.loss)
        return False

    monitor, model, optimizer = watched(folder)
    monitor.alert_system.add_alert_rule(name="seen", condition=is_seen, severity="info", message="seen")
    for step in range(3):
        model(torch.randn(4, 4)).square().mean().backward()
        optimizer.step()
        monitor.log_loss(float(step), 0.1, 0)
    monitor.stop_monitoring()
    assert list(dict.fromkeys(values)) == [0.0, 1.0, 2.0]


def test_a_monitor_that_is_off_records_no_loss(folder: Path) -> None:
    monitor = stepscope.TrainingMonitor({"recorder": {"enabled": False}}, directory=folder)
    monitor.log_loss(1.0, 0.1, 0)
    assert not monitor.is_recording
    assert not folder.exists()
