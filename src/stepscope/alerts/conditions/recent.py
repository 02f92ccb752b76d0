"""The newest points of one series, in the order of their times, and what it was like at first."""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Iterator

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

WARM_UP, FEWEST, MOST = 10, 30, 100
"""A baseline leaves out so many finite points, is there after so many, and is fixed after so many."""

KEPT_ANYWAY = 1000
"""So many points are kept however old they are: of what is logged seldom, the last ones still count."""

MIN_POINTS, MIN_SHARE, MIN_TIME = 3, 0.2, 0.8
"""A series has enough for a window when it has so many points at all, and this share of the points the window
asks for, or is as old as this share of the time it asks for."""

STARTED = 5
"""So many finite points tell where a series began."""

MAX_UNJUDGED = 100_000
"""So many points are kept until rules have looked at them; of more, the newest."""

_FIRST_ROOM = 64


def quantile(values: Floats, share: float) -> float:
    """What so much of the values lies below, between two of them in proportion.

    Rules look at few values and look often: for these, NumPy's own takes ten times as long.
    """
    return quantile_in_order(np.sort(values), share)


def quantile_in_order(ordered: Floats, share: float) -> float:
    """The same of values that are in order already, the smallest first."""
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
    unjudged: int = 0
    """So many more are kept until rules have looked at them."""


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
        self.unjudged = 0
        """How many of the newest points no rule has looked at yet; whoever looks at them sets it to 0."""
        self.last_divergence: tuple[float, float] | None = None
        """The level before the last divergence that was found, and that in it."""
        self._hidden = 0
        self._baseline: float | None = None
        self._start: float | None = None
        self._began: Floats = np.empty(0, np.float64)
        self._to_skip = WARM_UP
        self._first: Floats = np.empty(0, np.float64)
        self._sorted: dict[int, Floats] = {}

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

    @property
    def baseline(self) -> float | None:
        """The median of the first points after the warm-up; None while there are too few."""
        return None if self._hidden and self.total < WARM_UP + FEWEST else self._baseline

    @property
    def start(self) -> float | None:
        """The median of the first five finite points; None while there are fewer."""
        return None if self._hidden and self.total < STARTED else self._start

    @contextmanager
    def as_of(self, points: int) -> Iterator[None]:
        """Hides all but the first so many of the kept points: as it was when the last of them came."""
        hidden, in_order = len(self) - points, self._sorted
        self._end, self.total, self._hidden, self._sorted = (
            self._end - hidden,
            self.total - hidden,
            hidden,
            {},
        )
        try:
            yield
        finally:
            self._end, self.total = self._end + hidden, self.total + hidden
            self._hidden, self._sorted = 0, in_order

    def judged_until(self, time_ns: int) -> None:
        """Points that were logged then or earlier need not be looked at any more."""
        self.unjudged = min(self.unjudged, len(self) - int(np.searchsorted(self.times_ns, time_ns, "right")))

    def since(self, time_ns: int) -> slice:
        """Where the points that were logged then or later stand."""
        return slice(int(np.searchsorted(self.times_ns, time_ns)), len(self))

    def newest(self, points: int) -> slice:
        """Where the last so many points stand."""
        return slice(max(0, len(self) - points), len(self))

    def fills_points(self, points: int) -> bool:
        """Whether there are enough points to judge a window of so many."""
        return self.total >= min(points, max(MIN_POINTS, MIN_SHARE * points))

    def fills_time(self, span_ns: int, now_ns: int) -> bool:
        """Whether there are enough points, over enough time, to judge a window of so long until now."""
        if self.total < MIN_POINTS:
            return False
        has_forgotten = self.total > len(self)  # the first of those that are left is not the beginning
        return has_forgotten or now_ns - int(self.times_ns[0]) >= MIN_TIME * span_ns

    def in_order(self, points: int) -> Floats:
        """The finite ones of the last so many values, the smallest first; worked out once for all who ask."""
        known = self._sorted.get(points)
        if known is None:
            values = self.values[-points:].copy()
            values.sort()
            # NaN is sorted behind all others, so that the ends tell.
            if len(values) and not (math.isfinite(values[0]) and math.isfinite(values[-1])):
                values = values[np.isfinite(values)]
            known = self._sorted[points] = values
        return known

    def add(self, steps: Whole, times_ns: Whole, values: Floats) -> None:
        """Takes further points."""
        self.total += len(values)
        if len(self._first) < MOST:
            self._learn(values)
        self.unjudged = min(self.unjudged + len(values), self._room.unjudged)
        if len(values) > self._room.points + self.unjudged:
            newest = slice(-self._room.points - self.unjudged, None)
            steps, times_ns, values = steps[newest], times_ns[newest], values[newest]
        begin, end = self._end, self._end + len(values)
        if end > len(self._values):
            self._make_room(len(values))
            begin, end = self._end, self._end + len(values)
        self._end = end
        self._steps[begin:end] = steps
        self._times[begin:end] = times_ns
        self._values[begin:end] = values
        self._sorted.clear()
        first = max(self._begin, begin - 1)
        if (self._times[first + 1 : end] < self._times[first : end - 1]).any():
            self._sort()
        if len(self) > min(self._room.anyway, self._room.points):
            self._forget()

    def _learn(self, values: Floats) -> None:
        finite = values[np.isfinite(values)]
        if self._start is None:
            self._began = np.concatenate([self._began, finite[: STARTED - len(self._began)]])
            self._start = median(self._began) if len(self._began) == STARTED else None
        skipped = min(self._to_skip, len(finite))
        self._to_skip -= skipped
        self._first = np.concatenate([self._first, finite[skipped:][: MOST - len(self._first)]])
        if len(self._first) >= FEWEST:
            self._baseline = median(self._first)

    def _make_room(self, points: int) -> None:
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
        # Those that came late are looked at with all that follows them.
        self.unjudged = len(self) - int(np.argmax(order >= len(self) - self.unjudged))

    def _forget(self) -> None:
        # A window that ended with the first point nobody has looked at is kept whole.
        self._begin = max(self._begin, self._end - self._room.points - self.unjudged)
        anyway = self._room.anyway + self.unjudged
        kept_since_ns = int(self._times[self._end - 1]) - self._room.keep_ns
        if len(self) > anyway and self._times[self._begin] < kept_since_ns:
            self._begin += min(self.since(kept_since_ns).start, len(self) - anyway)
