"""The model of the demonstration in torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray


class TorchModel:
    """A classifier with one hidden layer; making one raises ImportError where torch is missing."""

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
