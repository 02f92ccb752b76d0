"""Reads the arguments that all scripts share, and writes what a training did."""

import argparse
import hashlib
import json
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch


class Trial:
    """One training: its arguments, its time, and the file that says what it did."""

    def __init__(self, steps: int) -> None:
        parser = argparse.ArgumentParser()
        parser.add_argument("--steps", type=int, default=steps, help="optimizer steps in all")
        parser.add_argument("--folder", type=Path, default=Path(), help="where checkpoints are")
        parser.add_argument("--callback", action="store_true", help="record with the framework's callback")
        parser.add_argument("--resume", action="store_true", help="continue from the newest checkpoint")
        options = parser.parse_args()
        self.steps: int = options.steps
        self.folder: Path = options.folder
        self.with_callback: bool = options.callback
        self.resumes: bool = options.resume
        self._seconds = self._cpu_seconds = 0.0
        random.seed(0)
        torch.manual_seed(0)
        np.random.seed(0)

    @property
    def callback_arguments(self) -> dict[str, object]:
        """The arguments of a callback: a name, so that a resumed training finds its run."""
        return {"run": "trial", "resume": self.resumes}

    @contextmanager
    def loop(self) -> Iterator[None]:
        """Times the training itself, without imports and data."""
        wall, cpu = time.perf_counter(), time.process_time()
        yield
        self._seconds, self._cpu_seconds = time.perf_counter() - wall, time.process_time() - cpu

    def write(self, steps: int, model: torch.nn.Module, losses: Sequence[float | torch.Tensor] = ()) -> None:
        """Writes how many steps the trainer has counted, its losses to the bit, and its weights."""
        outcome = {
            "steps": int(steps),
            "losses": [float(loss).hex() for loss in losses],
            "weights": _digest(model),
            "seconds": self._seconds,
            "cpu_seconds": self._cpu_seconds,
        }
        (self.folder / "outcome.json").write_text(json.dumps(outcome))


def _digest(model: torch.nn.Module) -> str:
    digest = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        digest.update(name.encode())
        if isinstance(value, torch.Tensor):
            digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def classes(samples: int, features: int = 64, kinds: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    """Points around one centre for each class: something that a small model can learn."""
    generator = np.random.default_rng(0)
    centres = generator.normal(size=(kinds, features))
    labels = generator.integers(0, kinds, samples)
    points = centres[labels] + generator.normal(scale=2.0, size=(samples, features))
    return torch.from_numpy(points.astype(np.float32)), torch.from_numpy(labels)


def classifier(features: int = 64, hidden: int = 1024, kinds: int = 8) -> torch.nn.Sequential:
    """A model whose step takes some ten milliseconds on one core."""
    return torch.nn.Sequential(
        torch.nn.Linear(features, hidden),
        torch.nn.ReLU(),
        torch.nn.Linear(hidden, hidden),
        torch.nn.ReLU(),
        torch.nn.Linear(hidden, kinds),
    )
