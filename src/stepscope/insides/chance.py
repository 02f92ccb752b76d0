"""Decides by chance whether to look at a step, so seldom that looking keeps to its share of the time."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

OUTLIER = 4.0
"""A time counts as at most so many times the usual one: a pause of the process says nothing about us."""


def own_draw() -> Callable[[], float]:
    """A source of chance that leaves the one of the training alone: runs stay reproducible."""
    return random.Random().random  # noqa: S311 - nothing here is a secret


class Usual:
    """A time as it usually is; the first one, which pays for what is done once, does not count."""

    def __init__(self) -> None:
        self.ns: float | None = None
        self._began = False

    def add(self, ns: float) -> None:
        """Takes a further time into account."""
        if not self._began:
            self._began = True
        elif self.ns is None:
            self.ns = ns
        else:
            self.ns += 0.2 * (min(ns, OUTLIER * self.ns) - self.ns)


class Chance:
    """How likely a step is to be looked at.

    A fixed stride would fall in step with what a loop does every so many steps, and show that alone.
    """

    def __init__(self, share: float, every: int = 1, draw: Callable[[], float] | None = None) -> None:
        self._share, self._every = share, every
        self._draw = draw or own_draw()
        self._cost = Usual()

    def rate(self, step_ns: float | None) -> float:
        """The probability, given how long a step usually takes."""
        most = 1.0 / self._every
        if self._cost.ns is None or step_ns is None:
            return most
        return min(most, self._share * step_ns / max(self._cost.ns, 1.0))

    def is_due(self, step_ns: float | None) -> bool:
        """Whether to look at this step."""
        return self._draw() < self.rate(step_ns)

    def spent(self, ns: float) -> None:
        """Tells what a look has cost."""
        self._cost.add(ns)
