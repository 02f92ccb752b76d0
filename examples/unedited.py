"""A training without stepscope in it. Record it with: stepscope run -- python examples/unedited.py."""

from __future__ import annotations

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(nn.Module):
    """Decides whether the sum of its inputs is positive."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, width), nn.ReLU(), nn.Linear(width, 2))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Two scores for each row."""
        scores: torch.Tensor = self.layers(inputs)
        return scores


def main() -> None:
    """Trains for some epochs, and prints the loss of each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--width", type=int, default=64)
    options = parser.parse_args()

    torch.manual_seed(0)
    inputs = torch.randn(1024, 16)
    data = TensorDataset(inputs, (inputs.sum(dim=1) > 0).long())
    model = Classifier(options.width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    for epoch in range(options.epochs):
        for batch, targets in DataLoader(data, batch_size=32, shuffle=True):
            loss = nn.functional.cross_entropy(model(batch), targets)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]  # of PyTorch
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
