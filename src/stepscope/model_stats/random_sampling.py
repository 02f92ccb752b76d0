"""Decides by chance whether to look at a step, so seldom that looking keeps to its share of the time."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_OUTLIER_FACTOR = 4.0
"""A time counts as at most so many times the usual one: a pause of the process says nothing about us."""

RESERVED_NS = 500_000
"""So much of a step's time pays for timing the step itself: short ones have little left for looks."""

EXTRA_COST_NS = 150_000
"""What a look costs beside what is timed of it: hooks come and go, and more is done when the step ends."""

NEVER = 1 << 30
"""So many steps are not counted to the end."""


def own_random() -> Callable[[], float]:
    """A source of chance that leaves the one of the training alone: runs stay reproducible."""
    return random.Random().random  # noqa: S311 - nothing here is a secret


class TypicalTime:
    """A time as it usually is; the first one, which pays for what is done once, does not count."""

    def __init__(self, guess_ns: float | None = None) -> None:
        self.ns = guess_ns
        self._began = False

    def add(self, ns: float) -> None:
        """Takes a further time into account."""
        if not self._began:
            self._began = True
        elif self.ns is None:
            self.ns = ns
        else:
            self.ns += 0.2 * (min(ns, MAX_OUTLIER_FACTOR * self.ns) - self.ns)


class RandomSampling:
    """How likely a step is to be looked at, and which one is next.

    A fixed stride would fall in step with what a loop does every so many steps, and show that alone. What is
    drawn is the number of steps until the next look, not anew for every step: so most of them cost nothing.
    """

    def __init__(
        self,
        share: float,
        every: int = 1,
        draw: Callable[[], float] | None = None,
        guess_ns: float | None = None,
    ) -> None:
        """Until two looks have told their cost the guess holds; without one, as many as there may be."""
        self._share, self._every = share, every
        self._draw = draw or own_random()
        self._cost = TypicalTime(guess_ns)
        self._left = 0

    def rate(self, step_ns: float | None) -> float:
        """The probability, given how long a step usually takes."""
        most = 1.0 / self._every
        if self._cost.ns is None or step_ns is None:
            return most
        paying_ns = max(step_ns - RESERVED_NS, 0.1 * step_ns)
        return min(most, self._share * paying_ns / max(self._cost.ns, 1.0))

    def is_due(self, step_ns: float | None) -> bool:
        """Whether to look at this step; each is asked about once, but for those that are skipped."""
        self.quiet_steps(step_ns)
        self._left -= 1
        return self._left == 0

    def quiet_steps(self, step_ns: float | None) -> int:
        """How many steps come before the next one to look at."""
        if self._left == 0:
            self._left = steps_until(self.rate(step_ns), self._draw())
        return self._left - 1

    def skip(self, steps: int) -> None:
        """Counts quiet steps that are not asked about."""
        self._left -= steps

    def spent(self, ns: float) -> None:
        """Tells what a look has cost."""
        self._cost.add(ns)


def steps_until(rate: float, draw: float) -> int:
    """How many steps on the first one is that comes about with this probability; 1 for the very next."""
    if draw >= 1.0 or rate <= 0.0:
        return NEVER
    if rate >= 1.0:
        return 1
    return min(1 + int(math.log(1.0 - draw) / math.log(1.0 - rate)), NEVER)
