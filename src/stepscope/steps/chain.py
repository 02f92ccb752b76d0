"""Cuts the time of a training thread into phases, one boundary after another: parts add up to the whole."""

from __future__ import annotations

from time import monotonic_ns
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from stepscope.schema.keys import PHASES, STEP_SECONDS, phase_key

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


class Chain:
    """The phase in hand, and how long each has taken in this step.

    Entering a phase ends the one before; whoever enters gets that one back, to return to it. There is no
    pair of start and end that could be missed or counted twice.
    """

    def __init__(self, now_ns: Callable[[], int] = monotonic_ns) -> None:
        self._now_ns = now_ns
        self._spent = [0] * len(PHASES)
        self._left = [0] * len(PHASES)
        self.phase = OTHER
        """The phase in hand; to be read only."""
        self._since = self.began_ns = now_ns()
        """When the step in hand began."""
        self.waited_ns = 0
        """Wait for data in this step, where that is timed by itself and not as a phase."""
        self.boundaries = 0
        """How many phases have begun in this step."""
        self.device: Stamps | None = None
        """The clock of a device, while this step is timed on it too."""
        self.steps_made = 0
        """How often an optimizer has ended a step."""
        self.on_skipped_step: Callable[[Any], None] = lambda _: None
        """Called with the optimizer that a loss scaler has not stepped, because of an overflow."""

    def left_ns(self, phase: int) -> int:
        """When a phase was last left; 0 if never."""
        return self._left[phase]

    def enter(self, phase: int) -> int:
        """Begins a phase; returns the one it ends."""
        now = self._now_ns()
        before = self.phase
        self._spent[before] += now - self._since
        self._left[before] = self._since = now
        self.phase = phase
        self.boundaries += 1
        if self.device is not None:
            self.device.stamp(phase, now)
        return before

    def restart(self) -> None:
        """Forgets what was measured: a step begins here."""
        self._spent = [0] * len(PHASES)
        self.waited_ns = self.boundaries = 0
        self._since = self.began_ns = self._now_ns()

    def cut(self) -> Cut:
        """Ends the step; the next begins at the same moment."""
        now = self._now_ns()
        spent, self._spent = self._spent, [0] * len(PHASES)
        spent[self.phase] += now - self._since
        spent[self.phase] -= self.waited_ns
        spent[DATA] += self.waited_ns
        cut = Cut(now, now - self.began_ns, spent)
        self._since = self.began_ns = now
        self.waited_ns = self.boundaries = 0
        return cut

    def cut_whole(self, now_ns: int) -> None:
        """Ends a step in which no phase has begun: there is nothing to share out."""
        self._since = self.began_ns = now_ns
        self.waited_ns = 0
