"""Chooses the steps that are timed phase by phase: by chance, as many as the allowed overhead pays for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepscope.model_stats.chance import Usual, own_draw, steps_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepscope.steps.overhead import Overhead

FIRST_STEPS = 10
"""So many steps are timed whatever it costs: a short run should show its phases too."""

REVIEW_STEPS = 8
"""Where every step can be timed, that is decided again after so many steps."""

MAX_PAUSE = 1000
"""At most so many steps pass before a decision is made again: steps may have become longer."""

TIMED_CALLS = 20
"""Calls in a step whose phases are timed, until they have been counted."""


class PhaseSampling:
    """Which steps are timed phase by phase.

    A fixed stride would fall in step with what a loop does every so many steps, so each step is chosen by
    chance; how likely that was is recorded with it.
    """

    def __init__(self, overhead: Overhead, now_ns: int, draw: Callable[[], float] | None = None) -> None:
        self._overhead, self._draw = overhead, draw or own_draw()
        self._cost = Usual(TIMED_CALLS * overhead.call_ns)
        self._step_time = Usual()
        self._chosen_ns = now_ns
        self._steps = self.left = 1 if overhead.has_begun else FIRST_STEPS
        """Steps until the next decision; whoever ends steps counts it down."""
        overhead.has_begun = True
        self._timed_next = False
        self.rate = 1.0
        """How likely a step was to be chosen when that was last decided."""

    @property
    def step_ns(self) -> float | None:
        """How long a step usually takes; None until that is known."""
        return self._step_time.ns

    def choose(self, now_ns: int) -> bool:
        """Whether the step that begins now is timed; holds for the next `left` steps."""
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
        """Takes in what timing the phases of one step has cost."""
        self._cost.add(ns)
        self._overhead.spend(ns)
