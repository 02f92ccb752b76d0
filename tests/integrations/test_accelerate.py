"""A loop of Accelerate is recorded by its tracker, and trains as without it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepscope import TrainingMonitor
from stepscope.reading import Run

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("without_agent")]
accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
torch = pytest.importorskip("torch")

from stepscope.integrations.accelerate import StepscopeTracker  # noqa: E402 - it needs accelerate


def losses_of(
    tracker: StepscopeTracker | None, *, accumulation: int = 1, watches: bool = True
) -> list[float]:
    """Trains two epochs of ten batches."""
    torch.manual_seed(0)
    loader = torch.utils.data.DataLoader(torch.randn(20, 4), batch_size=2, shuffle=True)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    accelerator = accelerate.Accelerator(log_with=tracker, gradient_accumulation_steps=accumulation, cpu=True)
    accelerator.init_trackers("project", config={"learning_rate": 1e-2})
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    if tracker is not None and watches:
        tracker.watch(model, optimizer)
    losses = []
    for _ in range(2):
        for x in loader:
            with accelerator.accumulate(model):
                loss = model(x).square().mean()
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                losses.append(loss.item())
                accelerator.log({"loss": loss.detach()})
    accelerator.end_training()
    return losses


@pytest.mark.parametrize(("accumulation", "steps"), [(1, 20), (4, 6)])
def test_each_optimizer_step_is_recorded_once(
    accumulation: int, steps: int, folder: Path, read: Callable[[str], Run]
) -> None:
    tracker = StepscopeTracker(run="loop", directory=folder)
    losses = losses_of(tracker, accumulation=accumulation)
    assert losses == losses_of(None, accumulation=accumulation)
    run = read("loop")
    assert run.status == "finished"
    assert run.series("step_seconds").steps.tolist() == list(range(steps))
    assert run.series("loss").values.tolist() == losses
    assert run.series("loss").steps.tolist() == list(range(steps))
    assert run.params["learning_rate"] == 1e-2


def test_what_is_logged_counts_the_steps_if_no_model_is_watched(
    folder: Path, read: Callable[[str], Run]
) -> None:
    losses = losses_of(StepscopeTracker(run="loop", directory=folder), watches=False)
    assert read("loop").series("loss").values.tolist() == losses
    assert read("loop").series("loss").steps.tolist() == list(range(20))


def test_the_monitor_is_what_accelerate_unwraps(folder: Path) -> None:
    with TrainingMonitor(run="mine", directory=folder) as monitor:
        accelerator = accelerate.Accelerator(log_with=StepscopeTracker(monitor), cpu=True)
        accelerator.init_trackers("project")
        assert accelerator.get_tracker("stepscope", unwrap=True) is monitor
        accelerator.end_training()
        assert monitor.open_recording() is not None  # the user ends it


def test_what_cannot_be_recorded_does_not_stop_the_loop(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tracker = StepscopeTracker(run="loop", directory=folder)
    odd: Any = 5
    tracker.watch(odd)
    tracker.log(odd)
    tracker.store_init_configuration(odd)
    tracker.finish()
    tracker.finish()
    assert "expected a torch.nn.Module" in caplog.text
