"""What full default watching adds to a training step of about five milliseconds, on the CPU and on a GPU.

    PYTHONPATH=src python -m benchmarks.step_overhead [--device cuda] [--blocks 60] [--steps 100]

Blocks with and without stepscope alternate in one process, in an order drawn by chance within each pair. Of a
block the median step counts, so that what the machine does now and then does not; of the pairs' ratios the
median, with an interval of 95 % by drawing pairs again and again.
"""

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch  # noqa: TID253 - it is what is measured
from torch import nn  # noqa: TID253 - nor without this

import stepscope

STEP_S = 0.005
WIDTH = 256


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--blocks", type=int, default=60)
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    torch.set_num_threads(1)
    training = Training(options.device)
    print(f"{options.device}: {training.layers} layers, a step takes {training.step_s * 1e3:.2f} ms")
    with tempfile.TemporaryDirectory() as folder:
        monitor = stepscope.TrainingMonitor(run="overhead", directory=folder)
        monitor.start_monitoring()
        ratios = compare(
            lambda: training.plain(options.steps),
            lambda: training.watched(options.steps, monitor),
            options.blocks,
        )
        noise = compare(
            lambda: training.plain(options.steps), lambda: training.plain(options.steps), options.blocks // 2
        )
        monitor.stop_monitoring()
    print(f"stepscope    {described(ratios)}")
    print(f"nothing      {described(noise)}   (the same loop against itself: the noise of this machine)")
    return 0


class Training:
    """A model sized so that a step takes about five milliseconds."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.layers = 4
        self._build()
        self.plain(20)
        for _ in range(4):
            self.step_s = self.plain(50)
            self.layers = max(1, round(self.layers * STEP_S / self.step_s))
            self._build()
            self.plain(20)
        self.step_s = self.plain(100)

    def _build(self) -> None:
        parts = [part for _ in range(self.layers) for part in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
        self._model = nn.Sequential(*parts).to(self.device)
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=1e-3)
        batches = [torch.randn(64, WIDTH) for _ in range(8)]
        self._batches = [batch.pin_memory() for batch in batches] if self.device == "cuda" else batches

    def plain(self, steps: int) -> float:
        """Seconds of the median of so many steps without stepscope."""
        return self._median(lambda: self._loop(self._data(steps), None))

    def watched(self, steps: int, monitor: stepscope.TrainingMonitor) -> float:
        """The same under full watching."""
        monitor.watch(self._model, self._optimizer)
        took = self._median(lambda: self._loop(monitor.batches(self._data(steps)), monitor))
        monitor.unwatch()
        return took

    def _data(self, steps: int) -> list[Any]:
        return [self._batches[step % len(self._batches)] for step in range(steps)]

    def _loop(self, data: Any, monitor: stepscope.TrainingMonitor | None) -> None:
        at = time.perf_counter()
        self._took = []
        for batch in data:
            x = batch.to(self.device, non_blocking=True)
            loss = self._model(x).square().mean()
            self._optimizer.zero_grad()
            loss.backward()
            self._optimizer.step()
            if monitor is not None:
                monitor.log_training_step(loss=loss.detach(), learning_rate=1e-3)
            now = time.perf_counter()
            self._took.append(now - at)
            at = now

    def _median(self, work: Callable[[], None]) -> float:
        if self.device == "cuda":
            torch.cuda.synchronize()
        work()
        if self.device == "cuda":
            torch.cuda.synchronize()
        return statistics.median(self._took[len(self._took) // 10 :])


def compare(first: Callable[[], float], second: Callable[[], float], pairs: int) -> list[float]:
    """How much longer the second takes than the first, pair by pair."""
    first(), second()
    ratios = []
    for _ in range(pairs):
        if random.random() < 0.5:
            one, other = first(), second()
        else:
            other, one = second(), first()
        ratios.append(other / one - 1)
    return ratios


def described(ratios: list[float]) -> str:
    """The median and where it lies, in percent."""
    drawn = sorted(statistics.median(random.choices(ratios, k=len(ratios))) for _ in range(2000))
    low, high = drawn[50], drawn[-50]
    return (
        f"{statistics.median(ratios):+.2%}, 95 % between {low:+.2%} and {high:+.2%}, of {len(ratios)} pairs"
    )


if __name__ == "__main__":
    sys.exit(main())
