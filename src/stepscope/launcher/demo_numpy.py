"""The model of the demonstration in numpy: forward and backward written out."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Floats = NDArray[np.float32]


class NumpyModel:
    """A classifier with one hidden layer."""

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
