"""Cuts the time of a training thread into phases, one boundary after another: parts add up to the whole."""

from __future__ import annotations

from time import monotonic_ns
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from stepscope.schema.keys import PHASES, STEP_SECONDS, phase_key
from stepscope.steps.compiled_code import never_compiled
from stepscope.steps.step_timer import StepTimer

if TYPE_CHECKING:
    from collections.abc import Callable

DATA, TRANSFER, FORWARD, BACKWARD, OPTIMIZER, CHECKPOINT, EVAL, OTHER = range(len(PHASES))

_KEYS = tuple(phase_key(name) for name in PHASES)
_NS = 1e-9


class Stamps(Protocol):
    """A second clock that is told of every boundary."""

    def stamp(self, phase: int, host_ns: int) -> None:
        """A phase begins."""

    def mark_ready(self) -> None:
        """The last gradient of this rank, so far, has been computed."""

    def abandon(self) -> None:
        """Forgets the current step: something came between that is no part of it."""


class Cut(NamedTuple):
    """A step that is over, in nanoseconds."""

    ended: int
    took: int
    spent: list[int]
    """By phase."""

    def row(self) -> dict[str, float]:
        """Its seconds by phase and together, by the keys they are recorded under."""
        row = dict(zip(_KEYS, [took * _NS for took in self.spent], strict=True))
        row[STEP_SECONDS] = self.took * _NS
        return row


class Pause(NamedTuple):
    """A step as it was when something else began that is no part of it."""

    began: int
    step_began: int
    since: int
    phase: int
    spent: list[int]
    boundaries: int
    waited: int


class PhaseTimer:
    """The phase in hand, and how long each has taken in this step.

    Entering a phase ends the one before; whoever enters gets that one back, to return to it. There is no
    pair of start and end that could be missed or counted twice.
    """

    def __init__(self, now_ns: Callable[[], int] = monotonic_ns, timer: StepTimer | None = None) -> None:
        self._now_ns = now_ns
        self._spent = [0] * len(PHASES)
        self._left = [0] * len(PHASES)
        self.phase = OTHER
        """The phase in hand; to be read only."""
        self.timer = timer or StepTimer()
        """Knows when the step in hand began, and ends those in which no phase begins."""
        self._since = self.timer.began_ns = now_ns()
        self.boundaries = 0
        """How many phases have begun in this step."""
        self.device: Stamps | None = None
        """The clock of a device, while this step is timed on it too."""
        self.on_skipped_step: Callable[[Any], None] = lambda _: None
        """Called with the optimizer that a loss scaler has not stepped, because of an overflow."""

    def left_ns(self, phase: int) -> int:
        """When a phase was last left; 0 if never."""
        return self._left[phase]

    @never_compiled
    def enter(self, phase: int) -> int:
        """Begins a phase; returns the one it ends."""
        now = self._now_ns()
        if not self.boundaries:
            self._since = self.timer.began_ns  # steps may have passed in which no phase began
            self.timer.is_special = True
        before = self.phase
        self._spent[before] += now - self._since
        self._left[before] = self._since = now
        self.phase = phase
        self.boundaries += 1
        if self.device is not None:
            self.device.stamp(phase, now)
        return before

    def restart(self, unfinished: Pause | None = None) -> Cut:
        """A step begins here, or one that is unfinished goes on; gives the time that is no part of either."""
        return self.cut() if unfinished is None else self.go_on(unfinished)

    def pause(self) -> Pause:
        """What follows is no part of the step, until `go_on`."""
        timer = self.timer
        began, since = timer.began_ns, self._since if self.boundaries else timer.began_ns
        spent = list(self._spent)
        return Pause(self._now_ns(), began, since, self.phase, spent, self.boundaries, timer.waited_ns)

    def go_on(self, pause: Pause) -> Cut:
        """The step goes on as it was; gives the time that is no part of it."""
        now = self._now_ns()
        took = now - pause.began
        spent = self._spent_until(now)
        spent[pause.phase] -= pause.began - pause.since
        spent = [after - before for after, before in zip(spent, pause.spent, strict=True)]
        self._since, self.phase, self._spent = pause.since + took, pause.phase, pause.spent
        self.boundaries, self.timer.waited_ns = pause.boundaries, pause.waited
        self.timer.began_ns = pause.step_began + took
        return Cut(now, took, spent)

    def leave_out(self, ended: int, took: int) -> Cut:
        """Takes a part out of the current step, wherever in it that was: first of what was no training."""
        left = took
        self.timer.began_ns += took
        for phase in (EVAL, OTHER, *range(len(PHASES))):
            taken = min(left, self._spent[phase])
            self._spent[phase] -= taken
            left -= taken
        self._since += left
        return Cut(ended, took, [0] * len(PHASES))

    def cut(self, now: int | None = None) -> Cut:
        """Ends the step; the next begins at the same moment."""
        if now is None:
            now = self._now_ns()
        timer = self.timer
        spent, self._spent = self._spent_until(now), [0] * len(PHASES)
        spent[self.phase] -= timer.waited_ns
        spent[DATA] += timer.waited_ns
        cut = Cut(now, now - timer.began_ns, spent)
        timer.began_ns = now
        timer.waited_ns = self.boundaries = 0
        return cut

    def _spent_until(self, now: int) -> list[int]:
        spent = list(self._spent)
        spent[self.phase] += now - (self._since if self.boundaries else self.timer.began_ns)
        return spent
