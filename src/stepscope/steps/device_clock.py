"""Times phases on a GPU: an event at each boundary, read steps later, never waited for."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from stepscope.model_stats.chance import own_draw, steps_until
from stepscope.schema.keys import PHASES, device_key
from stepscope.steps.phase_timer import BACKWARD
from stepscope.steps.ranks.gradients_ready import WAIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from stepscope.guard import Guard
    from stepscope.steps.overhead import Overhead

SHARE = 0.2
"""The part of the allowed overhead that timing on the device may take in the training thread."""

DEPTH = 64
"""Steps that may be unread at once; a further one is not timed."""

MAX_BOUNDARIES = 48
"""A step with more, as with many small batches to one optimizer step, is timed on the host alone."""

REBASE_S = 10.0
"""Times are counted from an event no older than this: they come as float32, exact to a microsecond so far."""

DRIFT = 50e-6
"""How far two clocks may run apart, as a share of the time that passes."""

_KEYS = tuple(device_key(name) for name in PHASES)
_LAGS = tuple(f"lag/{name}_seconds" for name in PHASES)


@dataclass
class _Step:
    """The boundaries of one step: what begins there, when the host got there, and the event it left."""

    number: int = 0
    phases: list[int] = field(default_factory=list)
    host_ns: list[int] = field(default_factory=list)
    events: list[Any] = field(default_factory=list)
    ready: Any = None
    """An event where the last gradient had been computed; None where nobody asks for that."""


class DeviceClock:
    """Chosen steps get events; what they say is recorded when the GPU has passed them.

    Steps are chosen by chance, so often that the budget holds: a fixed stride would fall in step with what a
    loop does every so many steps. How often is recorded with the figures.
    """

    def __init__(
        self,
        torch: ModuleType,
        record: Callable[[dict[str, float], int], None],
        guard: Guard,
        overhead: Overhead,
        chance: Callable[[], float] | None = None,
    ) -> None:
        self._torch, self._record, self._guard = torch, record, guard
        self._overhead = overhead
        self._chance = chance or own_draw()
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
        self._rests = False
        self.phase_rate = 1.0
        """How likely a step is to be timed phase by phase, which comes before being timed here."""
        self.step_ns: float | None = None
        """How long a step usually takes; None while that is not known, and each may be timed."""
        self.left = 1
        """Steps until the next one to be timed here, 1 for the very next; whoever begins those that are timed
        phase by phase counts it down."""

    def begin_step(self, phase: int, host_ns: int) -> bool:
        """Whether the step that begins, whose turn it is, can be timed; chooses the next one."""
        self.abandon()
        self._choose()
        if self._rests or len(self._unread) >= DEPTH:
            return False
        try:
            if self._torch.cuda.is_current_stream_capturing():
                return False
            self._stream = self._torch.cuda.current_stream()
            self._step = _Step()
            self.stamp(phase, host_ns)
        except RuntimeError as error:
            self._rest(error)
        return self._step is not None

    def _choose(self) -> None:
        self._rate = 1.0
        if self.step_ns is not None:
            affordable = SHARE * self._overhead.max_ratio * self.step_ns / self._usual_cost_ns
            self._rate = min(1.0, affordable / self.phase_rate)
        self.left = steps_until(self._rate, self._chance())

    def stamp(self, phase: int, host_ns: int) -> None:
        """A phase begins: leaves an event in the stream."""
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
            self._rest(error)
            return
        step.phases.append(phase)
        step.host_ns.append(host_ns)
        step.events.append(event)
        self._spent_ns += monotonic_ns() - host_ns

    def mark_ready(self) -> None:
        """The last gradient of this rank, so far, has been computed; may be called in autograd's thread."""
        step = self._step
        if step is None:
            return
        try:
            if step.ready is None:
                step.ready = self._event()
            step.ready.record(self._stream)
        except RuntimeError as error:
            self._rest(error)

    def _event(self) -> Any:
        return self._free.pop() if self._free else self._torch.cuda.Event(enable_timing=True)

    def end_step(self, number: int, host_ns: int) -> None:
        """The step in hand, which was timed, is over."""
        step = self._step
        if step is not None:
            self.stamp(-1, host_ns)
        if self._step is not None and step is not None:
            step.number = number
            self._unread.append(step)
        self._step = None

    def abandon(self) -> None:
        """Forgets the step in hand: something came between that is no part of it."""
        if self._step is not None:
            self._drop(self._step)

    def read(self) -> None:
        """Records those steps whose last boundary the GPU has passed."""
        told = 0
        began = monotonic_ns()
        try:
            while self._unread and not self._rests and self._unread[0].events[-1].query():
                self._tell(self._unread.popleft(), monotonic_ns())
                told += 1
        except RuntimeError as error:
            self._rest(error)
        self._spent_ns += monotonic_ns() - began
        if told:
            self._overhead.spend(self._spent_ns)
            self._usual_cost_ns += 0.1 * (self._spent_ns / told - self._usual_cost_ns)
            self._spent_ns = 0

    def flush(self) -> None:
        """Waits for what is unread and records it: the end of a run."""
        try:
            while self._unread and not self._rests:
                step = self._unread.popleft()
                step.events[-1].synchronize()
                self._tell(step, monotonic_ns())
        except RuntimeError as error:
            self._rest(error)

    def _tell(self, step: _Step, now_ns: int) -> None:
        spent: dict[int, float] = {}
        lags: dict[int, float] = {}
        at_ms = self._at_ms(step, now_ns)
        for place, phase in enumerate(step.phases[:-1]):
            spent[phase] = spent.get(phase, 0.0) + (at_ms[place + 1] - at_ms[place])
        self._offset.learn(step.host_ns, at_ms, now_ns)
        for place, phase in enumerate(step.phases[:-1]):
            # The lag at the end of a phase: the last one counts where a phase comes again.
            lags[phase] = self._offset.lag(step.host_ns[place + 1], at_ms[place + 1])
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
            chain = [0.0, *(base.elapsed_time(event) for event in step.events[1:])]
            step.events = step.events[1:]  # the base is kept
            return [self._base_at_ms + one for one in chain]
        return [self._base_at_ms + self._base.elapsed_time(event) for event in step.events]

    def _drop(self, step: _Step) -> None:
        self._give_back(step)
        self._step = None

    def _give_back(self, step: _Step) -> None:
        self._free += step.events
        if step.ready is not None:
            self._free.append(step.ready)

    def _rest(self, error: Exception) -> None:
        self._rests, self._step = True, None
        self._unread.clear()
        self._guard.complain("device clock", f"Phases are no longer timed on the GPU: {error!r}", error)


class _Offset:
    """Where the host's clock stands when the GPU's stands at zero, learnt from what cannot be otherwise.

    The GPU passes a boundary after the host has left it there, and before somebody sees that it has. Of many
    such bounds the tightest are near the truth; they widen slowly, because no two clocks run alike.
    """

    def __init__(self) -> None:
        self._low: float | None = None
        self._high = float("inf")
        self._at_ns = 0

    def learn(self, host_ns: list[int], at_ms: list[float], seen_ns: int) -> None:
        """Takes the boundaries of a step into account."""
        low = max(host - at * 1e6 for host, at in zip(host_ns, at_ms, strict=True))
        high = seen_ns - at_ms[-1] * 1e6
        if self._low is None:
            self._low, self._high = low, high
        else:
            widening = DRIFT * (seen_ns - self._at_ns)
            self._low = max(low, self._low - widening)
            self._high = min(high, self._high + widening)
        self._at_ns = seen_ns

    def lag(self, host_ns: int, at_ms: float) -> float:
        """How many nanoseconds after the host the GPU passed a boundary."""
        low = self._low or 0.0
        offset = low if low <= self._high else (low + self._high) / 2
        return max(at_ms * 1e6 + offset - host_ns, 0.0)
