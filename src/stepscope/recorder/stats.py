"""Keeps the running statistics that `get_training_stats` and `get_performance_summary` return."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class StepStats:
    """Counts steps and keeps statistics of the loss, in constant memory."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._began_at = now()
        self.steps = 0
        self._losses = 0
        self._total = 0.0
        self._minimum = self._maximum = self._current = 0.0

    def begin(self) -> None:
        """Starts the clock; steps counted before stay counted."""
        self._began_at = self._now()

    def add(self, loss: float | None) -> None:
        """Counts a step."""
        self.steps += 1
        if loss is None:
            return
        self._current = loss
        if self._losses == 0:
            self._minimum = self._maximum = loss
        elif loss < self._minimum:
            self._minimum = loss
        elif loss > self._maximum:
            self._maximum = loss
        self._losses += 1
        self._total += loss

    def follow(self, loss: float) -> None:
        """Adds the loss of a step that was already counted."""
        self.add(loss)
        self.steps -= 1

    def as_dict(self) -> dict[str, Any]:
        """The statistics of the loss by their public names; empty before the first loss."""
        if self._losses == 0:
            return {}
        return {
            "current_loss": self._current,
            "avg_loss": self._total / self._losses,
            "min_loss": self._minimum,
            "max_loss": self._maximum,
            "total_steps": self.steps,
            "training_time": self.elapsed_s,
        }

    def summary(self) -> dict[str, Any]:
        """Steps, steps per second, and the statistics of the loss."""
        elapsed_s = self.elapsed_s
        return {
            "steps": self.steps,
            "elapsed_seconds": elapsed_s,
            "steps_per_second": self.steps / elapsed_s if elapsed_s > 0 else 0.0,
            "loss": self.as_dict(),
        }

    @property
    def elapsed_s(self) -> float:
        """Seconds since the monitor began."""
        return self._now() - self._began_at
