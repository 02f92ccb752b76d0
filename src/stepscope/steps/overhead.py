"""Keeps what watching costs a training below a share of its time, and says how much that is."""

from __future__ import annotations

from time import monotonic_ns, perf_counter_ns
from typing import TYPE_CHECKING

from stepscope.steps.phase_timer import FORWARD, OTHER, PhaseTimer
from stepscope.steps.step_timer import is_compiled

if TYPE_CHECKING:
    from collections.abc import Callable

AIM = 0.8
"""The part of the allowed share that is aimed at: estimates are off now and then."""

MIN_RATE = 0.02
"""Even where nothing can be afforded, this share of steps shows its phases, if that costs little enough."""

MIN_SHARE = 0.1
"""The part of the allowed overhead that those steps may take at most."""

SETTLE_NS = 5e9
"""Time over which spending too much or too little is made up for."""

REPORT_NS = 1_000_000_000
"""How often the share is recorded."""

COLD = 15.0
"""How many times longer a call takes when a step's own data has pushed our code out of the caches.

Measured with `python -m benchmarks.step_overhead`: what phases add to a step, divided by their number.
"""

PLAIN_CALLS = 0.8 if is_compiled else 4.0
"""What a step costs whose phases are not timed, in calls of a hook; measured in the same way."""


class Overhead:
    """The account of one training thread: time that passes earns a share of it, our own work spends it.

    Work that takes some microseconds is timed where it is done. A single call of one of our hooks is too
    short for that; such calls are counted, at a price that is measured when the account is opened.
    """

    def __init__(
        self, max_ratio: float, now_ns: Callable[[], int] = monotonic_ns, call_ns: float | None = None
    ) -> None:
        self.max_ratio = max_ratio
        self.call_ns = _price_of_a_call() if call_ns is None else call_ns
        """What one call of a hook costs the training."""
        self.plain_step_ns = PLAIN_CALLS * self.call_ns
        """What a step costs of which only the whole is timed."""
        self._now_ns = now_ns
        self._idle_ns = 0
        self._at_ns = self._reported_ns = self._asked_ns = now_ns()
        self._balance_ns = 0.0
        self._unreported_ns = 0.0
        self.has_begun = False
        """Whether steps have been timed on this account already."""

    def now_ns(self) -> int:
        """A clock that stands still between passes over the data: such pauses say nothing about steps."""
        self._asked_ns = self._now_ns()
        return self._asked_ns - self._idle_ns

    def leave_out(self, since_ns: int) -> None:
        """Stops that clock for a pause that is over now, from when it was last asked at the earliest."""
        self._idle_ns += self._now_ns() - max(since_ns, self._asked_ns)

    def spend(self, ns: float) -> None:
        """Takes the cost of something into account."""
        self._balance_ns -= ns
        self._unreported_ns += ns

    def rate(self, now_ns: int, step_ns: float, cost_ns: float) -> float:
        """The share of steps of `step_ns` that can have their phases timed, which costs `cost_ns`."""
        allowed = AIM * self.max_ratio
        self._balance_ns += allowed * (now_ns - self._at_ns)
        self._at_ns = now_ns
        # A long pause of the training must not pay for a hurry afterwards.
        self._balance_ns = min(self._balance_ns, 4 * cost_ns)
        income = allowed * step_ns - self.plain_step_ns + self._balance_ns * step_ns / SETTLE_NS
        rate = income / max(cost_ns, 1.0)
        if rate >= 0.9:
            return 1.0
        return max(rate, min(MIN_RATE, MIN_SHARE * self.max_ratio * step_ns / max(cost_ns, 1.0)))

    def report(self, now_ns: int) -> float | None:
        """The share since the last report, when it is time for one."""
        elapsed = now_ns - self._reported_ns
        if elapsed < REPORT_NS:
            return None
        spent, self._unreported_ns, self._reported_ns = self._unreported_ns, 0.0, now_ns
        return spent / elapsed


def _price_of_a_call() -> float:
    chain = PhaseTimer()
    best = float("inf")
    for _ in range(5):
        began = perf_counter_ns()
        for _ in range(10):
            chain.enter(FORWARD)
            chain.enter(OTHER)
        best = min(best, perf_counter_ns() - began)
    return COLD * best / 20
