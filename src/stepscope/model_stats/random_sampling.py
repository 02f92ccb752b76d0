"""Samples steps at random, so rarely that sampling keeps to its share of the training's time."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_OUTLIER_FACTOR = 4.0
"""A time counts as at most this many times the typical one: the process may have been paused."""

RESERVED_NS = 500_000
"""Time of a step reserved for timing the step itself: short steps leave little for samples."""

EXTRA_COST_NS = 150_000
"""Cost of a sample beyond its measured time: adding and removing hooks, and work at the end of the step."""

NEVER = 1 << 30
"""A number of steps that no run reaches."""


def own_random() -> Callable[[], float]:
    """A random number generator separate from the training's: runs stay reproducible."""
    return random.Random().random  # noqa: S311 - nothing here is a secret


class TypicalTime:
    """A running typical time; the first value, which includes one-time work, is ignored."""

    def __init__(self, guess_ns: float | None = None) -> None:
        self.ns = guess_ns
        self._began = False

    def add(self, ns: float) -> None:
        """Adds a measured time."""
        if not self._began:
            self._began = True
        elif self.ns is None:
            self.ns = ns
        else:
            self.ns += 0.2 * (min(ns, MAX_OUTLIER_FACTOR * self.ns) - self.ns)


class RandomSampling:
    """Decides which step is sampled next, at a rate that keeps to a share of the time.

    A fixed stride could coincide with what a loop does every N steps. The number of steps until the next
    sample is drawn, not a decision for each step: so most steps cost nothing.
    """

    def __init__(
        self,
        share: float,
        every: int = 1,
        draw: Callable[[], float] | None = None,
        guess_ns: float | None = None,
    ) -> None:
        """Assumes `guess_ns` as the cost until two samples were measured; without it, the maximum rate."""
        self._share, self._every = share, every
        self._draw = draw or own_random()
        self._cost = TypicalTime(guess_ns)
        self._left = 0

    def rate(self, step_ns: float | None) -> float:
        """The sampling probability, given the typical time of a step."""
        max_rate = 1.0 / self._every
        if self._cost.ns is None or step_ns is None:
            return max_rate
        paying_ns = max(step_ns - RESERVED_NS, 0.1 * step_ns)
        return min(max_rate, self._share * paying_ns / max(self._cost.ns, 1.0))

    def is_due(self, step_ns: float | None) -> bool:
        """Whether to sample this step; called once for each step that is not skipped."""
        self.steps_to_skip(step_ns)
        self._left -= 1
        return self._left == 0

    def steps_to_skip(self, step_ns: float | None) -> int:
        """The number of steps before the next one to sample."""
        if self._left == 0:
            self._left = steps_until(self.rate(step_ns), self._draw())
        return self._left - 1

    def skip(self, steps: int) -> None:
        """Counts steps for which `is_due` is not called."""
        self._left -= steps

    def spent(self, ns: float) -> None:
        """Adds the cost of a sample."""
        self._cost.add(ns)


def steps_until(rate: float, draw: float) -> int:
    """The number of steps to the next sample at this rate (1: the next step); `draw` is in [0, 1)."""
    if draw >= 1.0 or rate <= 0.0:
        return NEVER
    if rate >= 1.0:
        return 1
    return min(1 + int(math.log(1.0 - draw) / math.log(1.0 - rate)), NEVER)
