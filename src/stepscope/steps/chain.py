"""Cuts the time of a training thread into phases, one boundary after another: parts add up to the whole."""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

PHASES = ("data", "transfer", "forward", "backward", "optimizer", "checkpoint", "eval", "other")
DATA, TRANSFER, FORWARD, BACKWARD, OPTIMIZER, CHECKPOINT, EVAL, OTHER = range(len(PHASES))

STEP_SECONDS = "step_seconds"


def phase_key(name: str) -> str:
    """The key under which a phase's seconds are recorded."""
    return f"phase/{name}_seconds"


_KEYS = tuple(phase_key(name) for name in PHASES)
_NS = 1e-9


class Stamps(Protocol):
    """A second clock that is told of every boundary."""

    def stamp(self, phase: int, host_ns: int) -> None:
        """A phase begins."""


class Chain:
    """The phase in hand, and how long each has taken in this step.

    Entering a phase ends the one before; whoever enters gets that one back, to return to it. There is no
    pair of start and end that could be missed or counted twice.
    """

    def __init__(self, now_ns: Callable[[], int] = perf_counter_ns) -> None:
        self._now_ns = now_ns
        self._spent = [0] * len(PHASES)
        self._left = [0] * len(PHASES)
        self._phase = OTHER
        self._since = self._began = now_ns()
        self.device: Stamps | None = None
        """The clock of a device, while this step is timed on it too."""

    @property
    def phase(self) -> int:
        """The phase in hand."""
        return self._phase

    @property
    def began_ns(self) -> int:
        """When the step in hand began."""
        return self._began

    def left_ns(self, phase: int) -> int:
        """When a phase was last left; 0 if never."""
        return self._left[phase]

    def enter(self, phase: int) -> int:
        """Begins a phase; returns the one it ends."""
        now = self._now_ns()
        before = self._phase
        self._spent[before] += now - self._since
        self._left[before] = self._since = now
        self._phase = phase
        if self.device is not None:
            self.device.stamp(phase, now)
        return before

    def restart(self) -> None:
        """Forgets what was measured: a step begins here."""
        self._spent = [0] * len(PHASES)
        self._since = self._began = self._now_ns()

    def cut(self) -> dict[str, float]:
        """Ends the step; returns its seconds by phase and together. The next begins at the same moment."""
        now = self._now_ns()
        spent, self._spent = self._spent, [0] * len(PHASES)
        spent[self._phase] += now - self._since
        row = dict(zip(_KEYS, [took * _NS for took in spent], strict=True))
        row[STEP_SECONDS] = (now - self._began) * _NS
        self._since = self._began = now
        return row
