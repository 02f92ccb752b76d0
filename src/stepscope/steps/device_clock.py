"""Times phases on a GPU: records a CUDA event at each boundary, and reads it steps later without waiting."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from stepscope.model_stats.random_sampling import own_random, steps_until
from stepscope.schema.keys import PHASES, device_key
from stepscope.steps.phase_timer import BACKWARD
from stepscope.steps.ranks.gradients_ready import WAIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from stepscope.guard import Guard
    from stepscope.steps.overhead import Overhead

SHARE = 0.2
"""Share of the allowed overhead that timing on the device may use in the training thread."""

MAX_UNREAD = 64
"""Maximum number of timed steps whose events are not read yet; further steps are not timed."""

MAX_BOUNDARIES = 48
"""A step with more phase boundaries, such as one of many micro-batches, is timed on the host only."""

REBASE_S = 10.0
"""Maximum age of the base event: CUDA returns float32 milliseconds, exact to a microsecond for this long."""

DRIFT = 50e-6
"""Maximum drift between the host's and the GPU's clock, as a share of elapsed time."""

_KEYS = tuple(device_key(name) for name in PHASES)
_LAGS = tuple(f"lag/{name}_seconds" for name in PHASES)


@dataclass
class _Step:
    """The boundaries of one step: the phase that starts, the host time, and the CUDA event."""

    number: int = 0
    phases: list[int] = field(default_factory=list)
    host_ns: list[int] = field(default_factory=list)
    events: list[Any] = field(default_factory=list)
    ready: Any = None
    """The event after the last gradient was computed; None if that is not measured."""


class DeviceClock:
    """Records CUDA events in sampled steps, and their times once the GPU has passed them.

    Steps are sampled at random, at a rate that keeps to the overhead budget: a fixed stride could coincide
    with what a loop does every N steps. The sampling rate is recorded with the values.
    """

    def __init__(
        self,
        torch: ModuleType,
        record: Callable[[dict[str, float], int], None],
        guard: Guard,
        overhead: Overhead,
        random: Callable[[], float] | None = None,
    ) -> None:
        self._torch, self._record, self._guard = torch, record, guard
        self._overhead = overhead
        self._random = random or own_random()
        self._free: list[Any] = []
        self._unread: deque[_Step] = deque()
        self._step: _Step | None = None
        self._stream: Any = None
        self._offset = _Offset()
        self._base: Any = None
        self._base_ns = 0
        self._base_at_ms = 0.0
        self._spent_ns = 0
        self._usual_cost_ns = 400_000.0
        self._rate = 1.0
        self._is_off = False
        self.phase_rate = 1.0
        """Probability that a step is timed phase by phase, which timing on the device requires."""
        self.step_ns: float | None = None
        """Typical duration of a step; None while unknown, when each step may be timed."""
        self.left = 1
        """Phase-timed steps until the next one timed here (1: the next one); the caller counts it down."""

    def begin_step(self, phase: int, host_ns: int) -> bool:
        """Starts timing the step that begins, and samples the next one; returns whether it can be timed."""
        self.abandon()
        self._choose()
        if self._is_off or len(self._unread) >= MAX_UNREAD:
            return False
        try:
            if self._torch.cuda.is_current_stream_capturing():
                return False
            self._stream = self._torch.cuda.current_stream()
            self._step = _Step()
            self.stamp(phase, host_ns)
        except RuntimeError as error:
            self._switch_off(error)
        return self._step is not None

    def _choose(self) -> None:
        self._rate = 1.0
        if self.step_ns is not None:
            affordable = SHARE * self._overhead.max_ratio * self.step_ns / self._usual_cost_ns
            self._rate = min(1.0, affordable / self.phase_rate)
        self.left = steps_until(self._rate, self._random())

    def stamp(self, phase: int, host_ns: int) -> None:
        """Records an event for the start of a phase."""
        step = self._step
        if step is None:
            return
        if len(step.events) >= MAX_BOUNDARIES:
            self._drop(step)
            return
        try:
            event = self._event()
            event.record(self._stream)
        except RuntimeError as error:
            self._switch_off(error)
            return
        step.phases.append(phase)
        step.host_ns.append(host_ns)
        step.events.append(event)
        self._spent_ns += monotonic_ns() - host_ns

    def mark_ready(self) -> None:
        """Marks the last gradient of this rank so far as computed; may be called in autograd's thread."""
        step = self._step
        if step is None:
            return
        try:
            if step.ready is None:
                step.ready = self._event()
            step.ready.record(self._stream)
        except RuntimeError as error:
            self._switch_off(error)

    def _event(self) -> Any:
        return self._free.pop() if self._free else self._torch.cuda.Event(enable_timing=True)

    def end_step(self, number: int, host_ns: int) -> None:
        """Ends the current step, which was timed."""
        step = self._step
        if step is not None:
            self.stamp(-1, host_ns)
        if self._step is not None and step is not None:
            step.number = number
            self._unread.append(step)
        self._step = None

    def abandon(self) -> None:
        """Discards the current step: it was interrupted by something that is not part of it."""
        if self._step is not None:
            self._drop(self._step)

    def read(self) -> None:
        """Records the steps whose last boundary the GPU has passed; never waits."""
        steps_read = 0
        began = monotonic_ns()
        try:
            while self._unread and not self._is_off and self._unread[0].events[-1].query():
                self._record_step(self._unread.popleft(), monotonic_ns())
                steps_read += 1
        except RuntimeError as error:
            self._switch_off(error)
        self._spent_ns += monotonic_ns() - began
        if steps_read:
            self._overhead.spend(self._spent_ns)
            self._usual_cost_ns += 0.1 * (self._spent_ns / steps_read - self._usual_cost_ns)
            self._spent_ns = 0

    def flush(self) -> None:
        """Waits for the unread steps and records them; called at the end of a run."""
        try:
            while self._unread and not self._is_off:
                step = self._unread.popleft()
                step.events[-1].synchronize()
                self._record_step(step, monotonic_ns())
        except RuntimeError as error:
            self._switch_off(error)

    def _record_step(self, step: _Step, now_ns: int) -> None:
        spent: dict[int, float] = {}
        lags: dict[int, float] = {}
        at_ms = self._at_ms(step, now_ns)
        for index, phase in enumerate(step.phases[:-1]):
            spent[phase] = spent.get(phase, 0.0) + (at_ms[index + 1] - at_ms[index])
        self._offset.learn(step.host_ns, at_ms, now_ns)
        for index, phase in enumerate(step.phases[:-1]):
            # The lag at the end of a phase; for a phase that occurs twice, the last one.
            lags[phase] = self._offset.lag(step.host_ns[index + 1], at_ms[index + 1])
        row = {_KEYS[phase]: took * 1e-3 for phase, took in spent.items()}
        row.update({_LAGS[phase]: lag * 1e-9 for phase, lag in lags.items()})
        if step.ready is not None and BACKWARD in step.phases:
            ended = len(step.phases) - step.phases[::-1].index(BACKWARD)
            ready_ms = self._base_at_ms + self._base.elapsed_time(step.ready)
            row[WAIT_SECONDS] = max(at_ms[ended] - ready_ms, 0.0) * 1e-3
        row["device/step_seconds"] = (at_ms[-1] - at_ms[0]) * 1e-3
        row["device/sampled_ratio"] = self._rate * self.phase_rate
        self._record(row, step.number)
        self._give_back(step)

    def _at_ms(self, step: _Step, now_ns: int) -> list[float]:
        """When the GPU passed each boundary, in milliseconds since the first base."""
        if self._base is None or now_ns - self._base_ns > REBASE_S * 1e9:
            base = step.events[0]
            if self._base is not None:
                self._base_at_ms += self._base.elapsed_time(base)
                self._free.append(self._base)
            self._base, self._base_ns = base, now_ns
            step.events[0] = base
            offsets_ms = [0.0, *(base.elapsed_time(event) for event in step.events[1:])]
            step.events = step.events[1:]  # the base is kept
            return [self._base_at_ms + offset_ms for offset_ms in offsets_ms]
        return [self._base_at_ms + self._base.elapsed_time(event) for event in step.events]

    def _drop(self, step: _Step) -> None:
        self._give_back(step)
        self._step = None

    def _give_back(self, step: _Step) -> None:
        self._free += step.events
        if step.ready is not None:
            self._free.append(step.ready)

    def _switch_off(self, error: Exception) -> None:
        self._is_off, self._step = True, None
        self._unread.clear()
        self._guard.complain("device clock", f"Phases are no longer timed on the GPU: {error!r}", error)


class _Offset:
    """The host time at which the GPU's clock is zero, estimated from bounds.

    The GPU passes a boundary after the host has recorded it, and before the host reads it as passed. The
    tightest of many such bounds are close to the true offset; they widen slowly, because clocks drift.
    """

    def __init__(self) -> None:
        self._low: float | None = None
        self._high = float("inf")
        self._at_ns = 0

    def learn(self, host_ns: list[int], at_ms: list[float], read_ns: int) -> None:
        """Tightens the bounds with the boundaries of a step."""
        low = max(host - at * 1e6 for host, at in zip(host_ns, at_ms, strict=True))
        high = read_ns - at_ms[-1] * 1e6
        if self._low is None:
            self._low, self._high = low, high
        else:
            widening = DRIFT * (read_ns - self._at_ns)
            self._low = max(low, self._low - widening)
            self._high = min(high, self._high + widening)
        self._at_ns = read_ns

    def lag(self, host_ns: int, at_ms: float) -> float:
        """How many nanoseconds after the host the GPU passed a boundary."""
        low = self._low or 0.0
        offset = low if low <= self._high else (low + self._high) / 2
        return max(at_ms * 1e6 + offset - host_ns, 0.0)
