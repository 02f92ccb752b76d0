"""Samples the steps that are timed phase by phase: at random, as many as the overhead budget allows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepscope.model_stats.random_sampling import TypicalTime, own_random, steps_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepscope.steps.overhead import Overhead

FIRST_STEPS = 10
"""The first steps are always timed, so that a short run shows its phases, too."""

REVIEW_STEPS = 8
"""If every step can be timed, the decision is reviewed after this many steps."""

MAX_PAUSE = 1000
"""Maximum number of steps until the next decision: steps may have become longer."""

TIMED_CALLS = 20
"""Assumed number of hook calls in a phase-timed step, until they have been counted."""


class PhaseSampling:
    """Decides which steps are timed phase by phase.

    Steps are sampled at random, because a fixed stride could coincide with what a loop does every N steps.
    The probability is recorded with each sampled step.
    """

    def __init__(self, overhead: Overhead, now_ns: int, draw: Callable[[], float] | None = None) -> None:
        self._overhead, self._draw = overhead, draw or own_random()
        self._cost = TypicalTime(TIMED_CALLS * overhead.call_ns)
        self._step_time = TypicalTime()
        self._chosen_ns = now_ns
        self._steps = self.left = 1 if overhead.has_begun else FIRST_STEPS
        """Steps until the next decision; the caller counts it down."""
        overhead.has_begun = True
        self._timed_next = False
        self.rate = 1.0
        """Sampling probability at the last decision."""

    @property
    def step_ns(self) -> float | None:
        """Typical duration of a step; None until known."""
        return self._step_time.ns

    def choose(self, now_ns: int) -> bool:
        """Whether the step that begins now is timed; the answer applies to the next `left` steps."""
        if self._timed_next:
            self._timed_next = False
            self._steps += 1
            self.left = 1
            return True
        self._step_time.add((now_ns - self._chosen_ns) / self._steps)
        step_ns = self._step_time.ns or (now_ns - self._chosen_ns) / self._steps
        self._chosen_ns = now_ns
        self.rate = self._overhead.rate(now_ns, step_ns, self._cost.ns or 0.0)
        if self.rate >= 1:
            self._steps = self.left = REVIEW_STEPS
            return True
        wait = min(steps_until(self.rate, self._draw()), MAX_PAUSE)
        self._timed_next = 1 < wait < MAX_PAUSE
        self._steps = self.left = max(wait - 1, 1)
        return wait == 1

    def spent(self, ns: float) -> None:
        """Adds the cost of timing the phases of one step."""
        self._cost.add(ns)
        self._overhead.spend(ns)
