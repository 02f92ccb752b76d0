"""Trains a small model under observation: what `stepscope demo` shows."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Protocol

import numpy as np

from stepscope.launcher.demo_numpy import NumpyModel
from stepscope.launcher.demo_torch import TorchModel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from stepscope.recorder.monitor import TrainingMonitor

    Progress = Callable[[int, float], None]
    """Told after each step: steps done, loss."""

FEATURES, HIDDEN, CLASSES = 64, 256, 10
BATCH_SIZE = 256
BATCHES_PER_EPOCH = 100
HIGHEST_RATE, WARM_UP = 0.2, 0.05


class SmallModel(Protocol):
    """A classifier with one hidden layer, and the three parts of a step."""

    library: str

    def forward(self, x: NDArray[np.float32], y: NDArray[np.int64]) -> tuple[float, float]:
        """Computes loss and accuracy of a batch."""

    def backward(self) -> None:
        """Computes the gradients."""

    def update(self, learning_rate: float) -> None:
        """Takes a step of gradient descent."""


def small_model(seed: int = 0) -> SmallModel:
    """The model in torch where torch is installed, in numpy where it is not."""
    try:
        return TorchModel((FEATURES, HIDDEN, CLASSES), seed)
    except ImportError:
        return NumpyModel((FEATURES, HIDDEN, CLASSES), seed)


def train(monitor: TrainingMonitor, model: SmallModel, steps: int, told: Progress) -> None:
    """Trains for so many steps, recorded as any training would be."""
    done = epoch = 0
    rng = np.random.default_rng(seed=0)
    centres = rng.normal(size=(CLASSES, FEATURES)).astype(np.float32)
    while done < steps:
        batches = _batches(rng, centres, min(BATCHES_PER_EPOCH, steps - done))
        for x, y in monitor.batches(batches):
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
        monitor.event("epoch", step=done - 1, epoch=epoch, loss=loss, accuracy=accuracy)
        epoch += 1


def rate_at(step: int, steps: int) -> float:
    """The learning rate of a step: a short warm-up, then half a cosine."""
    share = step / steps
    if share < WARM_UP:
        return HIGHEST_RATE * (share + 1 / steps) / (WARM_UP + 1 / steps)
    return HIGHEST_RATE * 0.5 * (1 + math.cos(math.pi * (share - WARM_UP) / (1 - WARM_UP)))


def _batches(
    rng: np.random.Generator, centres: NDArray[np.float32], count: int
) -> Iterator[tuple[NDArray[np.float32], NDArray[np.int64]]]:
    """Points scattered around a centre for each class, widely enough to be confused at times."""
    for _ in range(count):
        y = rng.integers(CLASSES, size=BATCH_SIZE)
        noise = rng.standard_normal((BATCH_SIZE, FEATURES), dtype=np.float32)
        yield centres[y] + 2.5 * noise, y
