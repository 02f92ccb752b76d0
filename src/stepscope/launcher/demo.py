"""Trains a small model under observation, with a loader that is slow at first: `stepscope demo`."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import numpy as np

from stepscope.launcher.demo_numpy import NumpyModel
from stepscope.launcher.demo_torch import TorchModel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from stepscope.recorder.monitor import TrainingMonitor

    Progress = Callable[[int, float], None]
    """Told after each step: steps done, loss."""

    _Batch = tuple[NDArray[np.float32], NDArray[np.int64]]

FEATURES, HIDDEN, CLASSES = 128, 1024, 10
BATCH_SIZE = 256
BATCHES_PER_EPOCH = 100
HIGHEST_RATE, WARM_UP = 0.2, 0.05

SLOW_S = 0.02
"""What the loader takes longer for a batch until it is mended, half-way."""

CHECKPOINTS = 4

RULE = {
    "name": "waiting_for_data",
    "when": "mean(phase/data_seconds, 50 points) > 30% * mean(step_seconds, 50 points)",
    "for": "2s",
    "message": "More than 30 % of each step is spent waiting for data: {value:.1g} s.",
    "advice": "Let workers load batches ahead. This demonstration does so half-way.",
}
"""Fires sooner than the rule that comes along, which gives a loader a minute."""


class SmallModel(Protocol):
    """A classifier with one hidden layer, and the three parts of a step."""

    library: str

    def forward(self, x: NDArray[np.float32], y: NDArray[np.int64]) -> tuple[float, float]:
        """Computes loss and accuracy of a batch."""

    def backward(self) -> None:
        """Computes the gradients."""

    def update(self, learning_rate: float) -> None:
        """Takes a step of gradient descent."""

    def save(self, path: Path) -> None:
        """Writes a checkpoint."""


def small_model(seed: int = 0) -> SmallModel:
    """The model in torch where torch is installed, in numpy where it is not."""
    try:
        return TorchModel((FEATURES, HIDDEN, CLASSES), seed)
    except ImportError:
        return NumpyModel((FEATURES, HIDDEN, CLASSES), seed)


def train(monitor: TrainingMonitor, model: SmallModel, steps: int, told: Progress) -> None:
    """Trains for so many steps, recorded as any training would be."""
    monitor.event("total_steps", value=steps)
    monitor.event("config", batch_size=BATCH_SIZE, hidden=HIDDEN, highest_rate=HIGHEST_RATE, warm_up=WARM_UP)
    done = epoch = 0
    rng = np.random.default_rng(seed=0)
    centres = rng.normal(size=(CLASSES, FEATURES)).astype(np.float32)
    # Drawn once and dealt out anew each time: a loader that is mended takes next to nothing.
    noise = 4 * rng.standard_normal((64 * BATCH_SIZE, FEATURES), dtype=np.float32)
    while done < steps:
        count = min(BATCHES_PER_EPOCH, steps - done)
        loader = _slow_until(steps // 2 - done, _batches(rng, centres, noise, count), monitor)
        for x, y in monitor.batches(loader):
            began_at = time.perf_counter()
            learning_rate = rate_at(done, steps)
            with monitor.phase("forward"):
                loss, accuracy = model.forward(x, y)
            with monitor.phase("backward"):
                model.backward()
            with monitor.phase("optimizer"):
                model.update(learning_rate)
            pace = BATCH_SIZE / (time.perf_counter() - began_at)
            monitor.log_training_step(
                loss=loss,
                accuracy=accuracy,
                learning_rate=learning_rate,
                custom_metrics={"samples_per_second": pace},
            )
            done += 1
            told(done, loss)
            if done % max(steps // CHECKPOINTS, 1) == 0:
                _save(monitor, model)
        monitor.event("epoch", step=done - 1, epoch=epoch, loss=loss, accuracy=accuracy)
        epoch += 1


def _slow_until(mended: int, batches: Iterator[_Batch], monitor: TrainingMonitor) -> Iterator[_Batch]:
    """A loader that keeps a training waiting, until somebody mends it."""
    for number, batch in enumerate(batches):
        if number < mended:
            time.sleep(SLOW_S)
        elif number == mended:
            monitor.event("loader_mended", text="Batches are now loaded ahead.")
        yield batch


def _save(monitor: TrainingMonitor, model: SmallModel) -> None:
    path = monitor.directory / "demo_checkpoint"
    with monitor.phase("checkpoint"), suppress(OSError):
        model.save(path)
    monitor.event("checkpoint", path=path.name)


def rate_at(step: int, steps: int) -> float:
    """The learning rate of a step: a short warm-up, then half a cosine."""
    share = step / steps
    if share < WARM_UP:
        return HIGHEST_RATE * (share + 1 / steps) / (WARM_UP + 1 / steps)
    return HIGHEST_RATE * 0.5 * (1 + math.cos(math.pi * (share - WARM_UP) / (1 - WARM_UP)))


def _batches(
    rng: np.random.Generator, centres: NDArray[np.float32], noise: NDArray[np.float32], count: int
) -> Iterator[_Batch]:
    """Points scattered around a centre for each class, widely enough to be confused at times."""
    for _ in range(count):
        y = rng.integers(CLASSES, size=BATCH_SIZE)
        begin = rng.integers(len(noise) - BATCH_SIZE)
        yield centres[y] + noise[begin : begin + BATCH_SIZE], y
