"""Trains a small model and records it, with a data loader that is slow until half-way: `stepscope demo`."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from stepscope.recorder.monitor import TrainingMonitor

    Progress = Callable[[int, float], None]
    """Called after each step with the number of steps done and the loss."""
    _Batch = tuple[NDArray[np.float32], NDArray[np.int64]]
    Floats = NDArray[np.float32]

FEATURES, HIDDEN, CLASSES = 128, 1024, 10
BATCH_SIZE = 256
BATCHES_PER_EPOCH = 100
MAX_RATE, WARM_UP = 0.2, 0.05

SLOW_S = 0.02
"""Extra time per batch of the slow loader, in the first half of the training."""

CHECKPOINTS = 4

RULE = {
    "name": "waiting_for_data",
    "when": "mean(phase/data_seconds, 50 points) > 30% * mean(step_seconds, 50 points)",
    "for": "2s",
    "message": "More than 30% of each step is spent waiting for data: {value:.1g} s.",
    "advice": "Let workers load batches ahead. This demonstration does so half-way.",
}
"""Fires sooner than the default rule, which waits for a minute."""


class SmallModel(Protocol):
    """A classifier with one hidden layer, with methods for the three parts of a step."""

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
    """The model in PyTorch if it is installed, else in NumPy."""
    try:
        return TorchModel((FEATURES, HIDDEN, CLASSES), seed)
    except ImportError:
        return NumpyModel((FEATURES, HIDDEN, CLASSES), seed)


def train(monitor: TrainingMonitor, model: SmallModel, steps: int, on_progress: Progress) -> None:
    """Trains for a number of steps, recorded like any other training."""
    monitor.event("total_steps", value=steps)
    monitor.event("config", batch_size=BATCH_SIZE, hidden=HIDDEN, highest_rate=MAX_RATE, warm_up=WARM_UP)
    done = epoch = 0
    rng = np.random.default_rng(seed=0)
    centres = rng.normal(size=(CLASSES, FEATURES)).astype(np.float32)
    # Drawn once and reused for all batches, so that the fast loader takes almost no time.
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
            samples_per_second = BATCH_SIZE / (time.perf_counter() - began_at)
            monitor.log_training_step(
                loss=loss,
                accuracy=accuracy,
                learning_rate=learning_rate,
                custom_metrics={"samples_per_second": samples_per_second},
            )
            done += 1
            on_progress(done, loss)
            if done % max(steps // CHECKPOINTS, 1) == 0:
                _save(monitor, model)
        monitor.event("epoch", step=done - 1, epoch=epoch, loss=loss, accuracy=accuracy)
        epoch += 1


def _slow_until(fixed_at: int, batches: Iterator[_Batch], monitor: TrainingMonitor) -> Iterator[_Batch]:
    """A slow data loader that becomes fast at a batch."""
    for number, batch in enumerate(batches):
        if number < fixed_at:
            time.sleep(SLOW_S)
        elif number == fixed_at:
            monitor.event("loader_fixed", text="Batches are now loaded ahead.")
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
        return MAX_RATE * (share + 1 / steps) / (WARM_UP + 1 / steps)
    return MAX_RATE * 0.5 * (1 + math.cos(math.pi * (share - WARM_UP) / (1 - WARM_UP)))


def _batches(
    rng: np.random.Generator, centres: NDArray[np.float32], noise: NDArray[np.float32], count: int
) -> Iterator[_Batch]:
    """Points scattered around the centre of each class, with enough noise to overlap."""
    for _ in range(count):
        y = rng.integers(CLASSES, size=BATCH_SIZE)
        begin = rng.integers(len(noise) - BATCH_SIZE)
        yield centres[y] + noise[begin : begin + BATCH_SIZE], y


class NumpyModel:
    """A classifier with one hidden layer in NumPy, with forward and backward pass written out."""

    library = "numpy"

    def __init__(self, sizes: tuple[int, int, int], seed: int) -> None:
        rng = np.random.default_rng(seed)
        self._weights = [
            rng.normal(0, (2 / inputs) ** 0.5, (inputs, outputs)).astype(np.float32)
            for inputs, outputs in pairwise(sizes)
        ]
        self._biases = [np.zeros(outputs, np.float32) for outputs in sizes[1:]]
        self._gradients: list[Floats] = []

    def forward(self, x: Floats, y: NDArray[np.int64]) -> tuple[float, float]:
        """Computes loss and accuracy of a batch."""
        hidden = np.maximum(x @ self._weights[0] + self._biases[0], 0)
        scores = hidden @ self._weights[1] + self._biases[1]
        odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        self._shares = odds / odds.sum(axis=1, keepdims=True)
        self._x, self._hidden, self._y = x, hidden, y
        of_truth = self._shares[np.arange(len(y)), y]
        return float(-np.log(of_truth + 1e-12).mean()), float((scores.argmax(axis=1) == y).mean())

    def backward(self) -> None:
        """Computes the gradients."""
        at_scores = self._shares.copy()
        at_scores[np.arange(len(self._y)), self._y] -= 1
        at_scores /= len(self._y)
        at_hidden = (at_scores @ self._weights[1].T) * (self._hidden > 0)
        self._gradients = [
            self._x.T @ at_hidden,
            self._hidden.T @ at_scores,
            at_hidden.sum(axis=0),
            at_scores.sum(axis=0),
        ]

    def update(self, learning_rate: float) -> None:
        """Takes a step of gradient descent."""
        for values, gradient in zip(self._weights + self._biases, self._gradients, strict=True):
            np.subtract(values, np.float32(learning_rate) * gradient, out=values)

    def save(self, path: Path) -> None:
        """Writes a checkpoint."""
        with path.open("wb") as file:
            np.savez(file, *self._weights, *self._biases)


class TorchModel:
    """The same classifier in PyTorch; creating one raises ImportError if PyTorch is not installed."""

    library = "torch"

    def __init__(self, sizes: tuple[int, int, int], seed: int) -> None:
        import torch  # lazy: it takes seconds to load, and may be missing

        torch.manual_seed(seed)
        self._torch = torch
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._model = torch.nn.Sequential(
            torch.nn.Linear(sizes[0], sizes[1]),
            torch.nn.ReLU(),
            torch.nn.Linear(sizes[1], sizes[2]),
        ).to(self._device)
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=0.0)

    def forward(self, x: NDArray[np.float32], y: NDArray[np.int64]) -> tuple[float, float]:
        """Computes loss and accuracy of a batch."""
        targets = self._torch.from_numpy(y).to(self._device)
        scores = self._model(self._torch.from_numpy(x).to(self._device))
        self._loss = self._torch.nn.functional.cross_entropy(scores, targets)
        accuracy = (scores.argmax(dim=1) == targets).float().mean()
        return self._loss.item(), accuracy.item()

    def backward(self) -> None:
        """Computes the gradients."""
        self._optimizer.zero_grad()
        self._torch.autograd.backward(self._loss)

    def update(self, learning_rate: float) -> None:
        """Takes a step of gradient descent."""
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        self._optimizer.step()

    def save(self, path: Path) -> None:
        """Writes a checkpoint."""
        self._torch.save(self._model.state_dict(), path)
