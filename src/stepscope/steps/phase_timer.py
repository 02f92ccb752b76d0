"""Divides the time of a training thread into phases without gaps: the phases of a step add up to its time."""

from __future__ import annotations

from time import monotonic_ns
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from stepscope.schema.keys import PHASES, STEP_SECONDS, phase_key
from stepscope.steps.compiled_code import never_compiled
from stepscope.steps.step_timer import StepTimer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DATA, TRANSFER, FORWARD, BACKWARD, OPTIMIZER, CHECKPOINT, EVAL, OTHER = range(len(PHASES))

_KEYS = tuple(phase_key(name) for name in PHASES)
_NS = 1e-9


class Stamps(Protocol):
    """A second clock, which receives every phase boundary."""

    def stamp(self, phase: int, host_ns: int) -> None:
        """Records the start of a phase."""

    def mark_ready(self) -> None:
        """Marks the last gradient of this rank so far as computed."""

    def abandon(self) -> None:
        """Discards the current step: it was interrupted by something that is not part of it."""


class StepTimes(NamedTuple):
    """The times of a step that has ended, in nanoseconds."""

    ended: int
    took: int
    spent: list[int]
    """Time in each phase."""

    def row(self) -> dict[str, float]:
        """The seconds of each phase and of the step, by metric key."""
        row = dict(zip(_KEYS, [took * _NS for took in self.spent], strict=True))
        row[STEP_SECONDS] = self.took * _NS
        return row


class Pause(NamedTuple):
    """The state of a step when it was interrupted by something that is not part of it."""

    began: int
    step_began: int
    since: int
    phase: int
    spent: list[int]
    boundaries: int
    waited: int


class PhaseTimer:
    """The current phase, and the time spent in each phase of this step.

    Entering a phase ends the previous one, which is returned so that the caller can return to it. So there
    are no pairs of start and end that could be missed or counted twice.
    """

    def __init__(self, now_ns: Callable[[], int] = monotonic_ns, timer: StepTimer | None = None) -> None:
        self._now_ns = now_ns
        self._spent = [0] * len(PHASES)
        self._left = [0] * len(PHASES)
        self.phase = OTHER
        """The current phase; read-only for others."""
        self.timer = timer or StepTimer()
        """Holds the start of the current step, and ends steps in which no phase is entered."""
        self._since = self.timer.began_ns = now_ns()
        self.boundaries = 0
        """Number of phases entered in this step."""
        self.own_ns = 0
        """Time of this step that stepscope has taken to find a model, which is no part of the step."""
        self.device: Stamps | None = None
        """The GPU's clock, if this step is also timed on the GPU."""
        self.on_skipped_step: Callable[[Any], None] = lambda _: None
        """Called with an optimizer whose step a loss scaler has skipped because of an overflow."""
        self.on_backward: Callable[[Any], None] = lambda _: None
        """Called with what a backward pass begins with, in steps that are timed phase by phase."""
        self.on_loss: Callable[[Any], None] = lambda _: None
        """Called with the same, and in all other steps of which `follow_losses` is called, too."""

    def left_ns(self, phase: int) -> int:
        """When a phase last ended; 0 if never."""
        return self._left[phase]

    @never_compiled
    def enter(self, phase: int) -> int:
        """Enters a phase; returns the previous one."""
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

    def begin_earlier(self, spent: Mapping[int, int]) -> None:
        """Starts the current step earlier, by the time that it has already spent in some phases."""
        if not self.boundaries:
            self._since = self.timer.began_ns
        for phase, took in spent.items():
            self._spent[phase] += took
            self.timer.began_ns -= took
        self.boundaries += 1
        self.timer.is_special = True

    def restart(self, unfinished: Pause | None = None) -> StepTimes:
        """Starts a step, or resumes an unfinished one; returns the time that belongs to neither."""
        return self.end_step() if unfinished is None else self.resume(unfinished)

    def pause(self) -> Pause:
        """Interrupts the step until `resume`."""
        timer = self.timer
        began, since = timer.began_ns, self._since if self.boundaries else timer.began_ns
        spent = list(self._spent)
        return Pause(self._now_ns(), began, since, self.phase, spent, self.boundaries, timer.waited_ns)

    def resume(self, pause: Pause) -> StepTimes:
        """Continues an interrupted step; returns the times of the interruption."""
        now = self._now_ns()
        took = now - pause.began
        spent = self._spent_until(now)
        spent[pause.phase] -= pause.began - pause.since
        spent = [after - before for after, before in zip(spent, pause.spent, strict=True)]
        self._since, self.phase, self._spent = pause.since + took, pause.phase, pause.spent
        self.boundaries, self.timer.waited_ns = pause.boundaries, pause.waited
        self.timer.began_ns = pause.step_began + took
        return StepTimes(now, took, spent)

    def exclude(self, ended: int, took: int) -> StepTimes:
        """Excludes time from the current step: from evaluation and other time first, then from the rest."""
        left = took
        self.timer.began_ns += took
        for phase in (EVAL, OTHER, *range(len(PHASES))):
            taken = min(left, self._spent[phase])
            self._spent[phase] -= taken
            left -= taken
        self._since += left
        return StepTimes(ended, took, [0] * len(PHASES))

    def end_step(self, now: int | None = None) -> StepTimes:
        """Ends the step, and starts the next one at the same time."""
        if now is None:
            now = self._now_ns()
        timer = self.timer
        spent, self._spent = self._spent_until(now), [0] * len(PHASES)
        spent[self.phase] -= timer.waited_ns
        spent[DATA] += timer.waited_ns
        own_ns, self.own_ns = max(min(self.own_ns, spent[OTHER]), 0), 0
        spent[OTHER] -= own_ns
        times = StepTimes(now, now - timer.began_ns - own_ns, spent)
        timer.began_ns = now
        timer.waited_ns = self.boundaries = 0
        return times

    def _spent_until(self, now: int) -> list[int]:
        spent = list(self._spent)
        spent[self.phase] += now - (self._since if self.boundaries else self.timer.began_ns)
        return spent
