"""The newest points of one series, in the order of their times, and what it was like at first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

WARM_UP, FEWEST, MOST = 10, 30, 100
"""A baseline leaves out so many finite points, is there after so many, and is fixed after so many."""

KEPT_ANYWAY = 1000
"""So many points are kept however old they are: of what is logged seldom, the last ones still count."""

_FIRST_ROOM = 64


def quantile(values: Floats, share: float) -> float:
    """What so much of the values lies below, between two of them in proportion.

    Rules look at few values and look often: for these, NumPy's own takes ten times as long.
    """
    ordered = np.sort(values)
    at = share * (len(ordered) - 1)
    below = int(at)
    lower, upper = float(ordered[below]), float(ordered[min(below + 1, len(ordered) - 1)])
    return lower + (upper - lower) * (at - below)


def median(values: Floats) -> float:
    """The value in the middle."""
    return quantile(values, 0.5)


@dataclass
class Room:
    """How much is kept of each series; may grow while they are kept."""

    points: int
    keep_ns: int
    """Points older than this, compared with the newest, are let go,"""
    anyway: int = KEPT_ANYWAY
    """but for so many."""


class Recent:
    """The newest points of one series."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._times: Whole = np.empty(_FIRST_ROOM, np.int64)
        self._steps: Whole = np.empty(_FIRST_ROOM, np.int64)
        self._values: Floats = np.empty(_FIRST_ROOM, np.float64)
        self._begin = self._end = 0
        self.total = 0
        """How many points there have been."""
        self.baseline: float | None = None
        """The median of the first points after the warm-up; None while there are too few."""
        self._to_skip = WARM_UP
        self._first: Floats = np.empty(0, np.float64)

    def __len__(self) -> int:
        return self._end - self._begin

    @property
    def times_ns(self) -> Whole:
        """When they were logged, in rising order."""
        return self._times[self._begin : self._end]

    @property
    def steps(self) -> Whole:
        """For which steps."""
        return self._steps[self._begin : self._end]

    @property
    def values(self) -> Floats:
        """Their values."""
        return self._values[self._begin : self._end]

    def since(self, time_ns: int) -> slice:
        """Where the points that were logged then or later stand."""
        return slice(int(np.searchsorted(self.times_ns, time_ns)), len(self))

    def newest(self, points: int) -> slice:
        """Where the last so many points stand."""
        return slice(max(0, len(self) - points), len(self))

    def add(self, steps: Whole, times_ns: Whole, values: Floats) -> None:
        """Takes further points."""
        self.total += len(values)
        self._learn(values)
        newest = slice(-self._room.points, None)
        steps, times_ns, values = steps[newest], times_ns[newest], values[newest]
        self._make_room(len(values))
        begin, self._end = self._end, self._end + len(values)
        self._steps[begin : self._end] = steps
        self._times[begin : self._end] = times_ns
        self._values[begin : self._end] = values
        if np.any(np.diff(self._times[max(self._begin, begin - 1) : self._end]) < 0):
            self._sort()
        self._forget()

    def _learn(self, values: Floats) -> None:
        if len(self._first) == MOST:
            return
        finite = values[np.isfinite(values)]
        skipped = min(self._to_skip, len(finite))
        self._to_skip -= skipped
        self._first = np.concatenate([self._first, finite[skipped:][: MOST - len(self._first)]])
        if len(self._first) >= FEWEST:
            self.baseline = median(self._first)

    def _make_room(self, points: int) -> None:
        if self._end + points <= len(self._values):
            return
        held = len(self)
        room = (held + points) * 5 // 4 + _FIRST_ROOM  # more than is needed, so that points are moved seldom
        for name in ("_times", "_steps", "_values"):
            old = getattr(self, name)
            new = np.empty(room, old.dtype)
            new[:held] = old[self._begin : self._end]
            setattr(self, name, new)
        self._begin, self._end = 0, held

    def _sort(self) -> None:
        order = np.argsort(self.times_ns, kind="stable")
        for column in (self.times_ns, self.steps, self.values):
            column[:] = column[order]

    def _forget(self) -> None:
        oldest = self.since(int(self.times_ns[-1]) - self._room.keep_ns).start if len(self) else 0
        oldest = min(oldest, max(0, len(self) - self._room.anyway))
        self._begin += max(oldest, len(self) - self._room.points)
