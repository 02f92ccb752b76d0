"""Limits the overhead of watching to a share of the training's time, and measures it."""

from __future__ import annotations

from time import monotonic_ns, perf_counter_ns
from typing import TYPE_CHECKING

from stepscope.steps.phase_timer import FORWARD, OTHER, PhaseTimer
from stepscope.steps.step_timer import is_compiled

if TYPE_CHECKING:
    from collections.abc import Callable

TARGET_SHARE = 0.8
"""Share of the allowed overhead to aim for: cost estimates can be too low."""

MIN_RATE = 0.02
"""Minimum share of steps whose phases are timed, as long as that costs less than `MIN_SHARE`."""

MIN_SHARE = 0.1
"""Share of the allowed overhead that this minimum may use."""

SETTLE_NS = 5e9
"""Time over which overspending and underspending are balanced."""

REPORT_NS = 1_000_000_000
"""How often the overhead is recorded."""

COLD_CACHE_FACTOR = 15.0
"""Slowdown of a hook call when the training's data has evicted its code from the CPU caches.

Measured with `python -m benchmarks.step_overhead`: the time that phases add to a step, divided by their
number.
"""

PLAIN_CALLS = 0.8 if is_compiled else 4.0
"""Cost of a step whose phases are not timed, in hook calls; measured in the same way."""

LOSS_CALLS, LOSS_SHARE = 1.5, 0.5
"""Cost of reading the loss of a step, in hook calls, and the share of the budget that it may use."""


class Overhead:
    """The overhead budget of one training thread: elapsed time adds to it, stepscope's own work subtracts.

    Work of several microseconds is timed where it is done. A single hook call is too short for that: calls
    are counted, at a cost per call that is measured once at the start.
    """

    def __init__(
        self, max_ratio: float, now_ns: Callable[[], int] = monotonic_ns, call_ns: float | None = None
    ) -> None:
        self.max_ratio = max_ratio
        self.call_ns = _measured_call_ns() if call_ns is None else call_ns
        """Cost of one hook call."""
        self._framework_calls, self._loss_calls = 0, 0.0
        self._now_ns = now_ns
        self._idle_ns = 0
        self._at_ns = self._reported_ns = self._read_ns = now_ns()
        self._balance_ns = 0.0
        self._unreported_ns = 0.0
        self._elsewhere_ns = self._seen_elsewhere_ns = 0.0
        self.has_begun = False
        """Whether steps have already been timed with this budget."""

    @property
    def plain_step_ns(self) -> float:
        """Cost of a step of which only the total time is measured."""
        return (PLAIN_CALLS + self._framework_calls + self._loss_calls) * self.call_ns

    def count_hooks(self, calls: int) -> None:
        """Adds the calls that the hooks of a framework make in every step to what a plain step costs."""
        self._framework_calls = calls

    def allows_losses(self, step_ns: float | None) -> bool:
        """Whether the loss of every step can be read; what that costs is then part of a plain step."""
        is_allowed = LOSS_CALLS * self.call_ns <= LOSS_SHARE * TARGET_SHARE * self.max_ratio * (step_ns or 0)
        self._loss_calls = LOSS_CALLS if is_allowed else 0.0
        return is_allowed

    def now_ns(self) -> int:
        """A clock that stops between passes over the data: such pauses are not part of steps."""
        self._read_ns = self._now_ns()
        return self._read_ns - self._idle_ns

    def exclude(self, since_ns: int) -> None:
        """Excludes a pause that ends now from that clock, but no time before the clock's last reading."""
        self._idle_ns += self._now_ns() - max(since_ns, self._read_ns)

    def spend(self, ns: float) -> None:
        """Subtracts a cost from the budget."""
        self._balance_ns -= ns
        self._unreported_ns += ns

    def spend_elsewhere(self, ns: float) -> None:
        """Subtracts a cost of the maintenance thread, which only that thread may call."""
        self._elsewhere_ns += ns

    def _collect(self) -> None:
        """Subtracts what was spent elsewhere: only the training thread changes the balance."""
        elsewhere_ns = self._elsewhere_ns
        self.spend(elsewhere_ns - self._seen_elsewhere_ns)
        self._seen_elsewhere_ns = elsewhere_ns

    def rate(self, now_ns: int, step_ns: float, cost_ns: float) -> float:
        """The share of steps whose phases can be timed, given the times of a step and of timing one."""
        self._collect()
        allowed = TARGET_SHARE * self.max_ratio
        self._balance_ns += allowed * (now_ns - self._at_ns)
        self._at_ns = now_ns
        # A long pause of the training must not pay for many timed steps afterwards.
        self._balance_ns = min(self._balance_ns, 4 * cost_ns)
        income = allowed * step_ns - self.plain_step_ns + self._balance_ns * step_ns / SETTLE_NS
        rate = income / max(cost_ns, 1.0)
        if rate >= 0.9:
            return 1.0
        return max(rate, min(MIN_RATE, MIN_SHARE * self.max_ratio * step_ns / max(cost_ns, 1.0)))

    def report(self, now_ns: int) -> float | None:
        """The overhead since the last report; None until the next report is due."""
        elapsed = now_ns - self._reported_ns
        if elapsed < REPORT_NS:
            return None
        self._collect()
        spent, self._unreported_ns, self._reported_ns = self._unreported_ns, 0.0, now_ns
        return spent / elapsed


def _measured_call_ns() -> float:
    phase_timer = PhaseTimer()
    best = float("inf")
    for _ in range(5):
        began = perf_counter_ns()
        for _ in range(10):
            phase_timer.enter(FORWARD)
            phase_timer.enter(OTHER)
        best = min(best, perf_counter_ns() - began)
    return COLD_CACHE_FACTOR * best / 20
