"""What the scripts share: dose and seed of this run, samples of ten classes, a small model."""

import argparse
from collections.abc import Iterator

import torch

_parser = argparse.ArgumentParser()
_parser.add_argument("--dose", type=float, default=1.0)
_parser.add_argument("--seed", type=int, default=0)
_parser.add_argument("--steps", type=int)
_OPTIONS, _ = _parser.parse_known_args()

DOSE: float = _OPTIONS.dose
"""How strong the fault is: 1 is the usual strength, 0 the same script without the fault."""

torch.manual_seed(_OPTIONS.seed)


def steps(usual: int) -> int:
    """How many steps to take."""
    return usual if _OPTIONS.steps is None else _OPTIONS.steps


def samples(count: int = 4096, features: int = 256) -> tuple[torch.Tensor, torch.Tensor]:
    """Noisy samples of ten classes, which can be learned but not perfectly."""
    y = torch.randint(10, (count,))
    return 0.2 * torch.randn(10, features)[y] + torch.randn(count, features), y


def batches(
    x: torch.Tensor, y: torch.Tensor, count: int, size: int = 64
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Random batches of samples in memory."""
    for _ in range(count):
        chosen = torch.randint(len(x), (size,))
        yield x[chosen], y[chosen]


def classifier(features: int = 256, width: int = 1024) -> torch.nn.Sequential:
    """A network with two hidden layers: a step takes a few milliseconds."""
    return torch.nn.Sequential(
        torch.nn.Linear(features, width),
        torch.nn.ReLU(),
        torch.nn.Linear(width, width),
        torch.nn.ReLU(),
        torch.nn.Linear(width, 10),
    )
