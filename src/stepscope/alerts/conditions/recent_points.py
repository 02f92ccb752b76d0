"""Keeps the newest points of one series in the order of time, and its baseline."""

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
Ints = NDArray[np.int64]

BASELINE_WARM_UP, MIN_BASELINE, MAX_BASELINE = 10, 30, 100
"""A baseline skips 10 finite points, exists from 30 further ones on, and is fixed after 100."""

MIN_KEPT = 1000
"""This many points are kept however old they are, for metrics that are rarely logged."""

MIN_POINTS, MIN_SHARE, MIN_TIME = 3, 0.2, 0.8
"""A window is evaluated if the series has this many points, and this share of the points of the window or a
history of this share of its seconds."""

START_POINTS = 5
"""Number of finite points that give the start of a series."""

MAX_UNEVALUATED = 100_000
"""Maximum number of points that are kept for the next evaluation; the oldest are dropped first."""

_INITIAL_CAPACITY = 64


def quantile(values: Floats, share: float) -> float:
    """Returns a quantile, with linear interpolation.

    Rules use few values and are evaluated often: for these, `numpy.quantile` takes ten times as long.
    """
    return quantile_of_sorted(np.sort(values), share)


def quantile_of_sorted(ordered: Floats, share: float) -> float:
    """Returns the same for values that are already sorted."""
    at = share * (len(ordered) - 1)
    below = int(at)
    lower, upper = float(ordered[below]), float(ordered[min(below + 1, len(ordered) - 1)])
    return lower + (upper - lower) * (at - below)


def median(values: Floats) -> float:
    """Returns the median."""
    return quantile(values, 0.5)


def min_points_for(points: int) -> float:
    """Returns how many points a series needs before a window of this many points is evaluated."""
    return min(points, max(MIN_POINTS, MIN_SHARE * points))


@dataclass
class Retention:
    """How many points of each series are kept; may grow."""

    points: int
    keep_ns: int
    """Points that are older than this, compared with the newest, are dropped, except for `min_kept`."""
    min_kept: int = MIN_KEPT
    max_unevaluated: int = 0
    """How many further points are kept until they were evaluated."""


class RecentPoints:
    """The newest points of one series."""

    def __init__(self, retention: Retention) -> None:
        self._retention = retention
        self._times: Ints = np.empty(_INITIAL_CAPACITY, np.int64)
        self._steps: Ints = np.empty(_INITIAL_CAPACITY, np.int64)
        self._values: Floats = np.empty(_INITIAL_CAPACITY, np.float64)
        self._begin = self._end = 0
        self.total = 0
        """Number of points since the beginning, including dropped ones."""
        self.unevaluated = 0
        """How many of the newest points were not evaluated yet; the evaluation sets it to 0."""
        self.last_divergence: tuple[float, float] | None = None
        """Level before and during the last divergence."""
        self._hidden = 0
        self._baseline: float | None = None
        self._start: float | None = None
        self._start_values: Floats = np.empty(0, np.float64)
        self._to_skip = BASELINE_WARM_UP
        self._baseline_values: Floats = np.empty(0, np.float64)
        self._sorted: dict[int, Floats] = {}

    def __len__(self) -> int:
        return self._end - self._begin

    @property
    def times_ns(self) -> Ints:
        """Times of the points, in ascending order."""
        return self._times[self._begin : self._end]

    @property
    def steps(self) -> Ints:
        """Steps of the points."""
        return self._steps[self._begin : self._end]

    @property
    def values(self) -> Floats:
        """Values of the points."""
        return self._values[self._begin : self._end]

    @property
    def baseline(self) -> float | None:
        """The median of the first points after the warm-up; None while there are too few."""
        is_early = self._hidden and self.total < BASELINE_WARM_UP + MIN_BASELINE
        return None if is_early else self._baseline

    @property
    def start(self) -> float | None:
        """The median of the first five finite points; None while there are fewer."""
        return None if self._hidden and self.total < START_POINTS else self._start

    @contextmanager
    def as_of(self, points: int) -> Iterator[None]:
        """Hides all but the first `points` of the kept points: the series as it was at the last of them."""
        hidden, cached = len(self) - points, self._sorted
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
            self._hidden, self._sorted = 0, cached

    def mark_evaluated_until(self, time_ns: int) -> None:
        """Records that all points up to this time were evaluated."""
        self.unevaluated = min(
            self.unevaluated, len(self) - int(np.searchsorted(self.times_ns, time_ns, "right"))
        )

    def since(self, time_ns: int) -> slice:
        """Returns the slice of the points at or after a time."""
        return slice(int(np.searchsorted(self.times_ns, time_ns)), len(self))

    def newest(self, points: int) -> slice:
        """Returns the slice of the last points."""
        return slice(max(0, len(self) - points), len(self))

    def has_points_for(self, points: int) -> bool:
        """Whether there are enough points to evaluate a window of this many points."""
        return self.total >= min_points_for(points)

    def has_time_for(self, span_ns: int, now_ns: int) -> bool:
        """Whether there are enough points, over enough time, to evaluate a window of this length."""
        if self.total < MIN_POINTS:
            return False
        has_dropped = self.total > len(self)  # then the first kept point is not the first of the series
        return has_dropped or now_ns - int(self.times_ns[0]) >= MIN_TIME * span_ns

    def sorted_values(self, points: int) -> Floats:
        """Returns the finite values of the last points, sorted; cached until the next point."""
        ordered = self._sorted.get(points)
        if ordered is None:
            ordered = self.values[-points:].copy()
            ordered.sort()
            # Sorting moves NaN to the end and infinities to the ends.
            if len(ordered) and not (math.isfinite(ordered[0]) and math.isfinite(ordered[-1])):
                ordered = ordered[np.isfinite(ordered)]
            self._sorted[points] = ordered
        return ordered

    def add(self, steps: Ints, times_ns: Ints, values: Floats) -> None:
        """Adds points."""
        self.total += len(values)
        if len(self._baseline_values) < MAX_BASELINE:
            self._update_baseline(values)
        self.unevaluated = min(self.unevaluated + len(values), self._retention.max_unevaluated)
        if len(values) > self._retention.points + self.unevaluated:
            newest = slice(-self._retention.points - self.unevaluated, None)
            steps, times_ns, values = steps[newest], times_ns[newest], values[newest]
        begin, end = self._end, self._end + len(values)
        if end > len(self._values):
            self._grow(len(values))
            begin, end = self._end, self._end + len(values)
        self._end = end
        self._steps[begin:end] = steps
        self._times[begin:end] = times_ns
        self._values[begin:end] = values
        self._sorted.clear()
        first = max(self._begin, begin - 1)
        if (self._times[first + 1 : end] < self._times[first : end - 1]).any():
            self._sort()
        if len(self) > min(self._retention.min_kept, self._retention.points):
            self._drop_old()

    def _update_baseline(self, values: Floats) -> None:
        finite = values[np.isfinite(values)]
        if self._start is None:
            missing = START_POINTS - len(self._start_values)
            self._start_values = np.concatenate([self._start_values, finite[:missing]])
            self._start = median(self._start_values) if len(self._start_values) == START_POINTS else None
        skipped = min(self._to_skip, len(finite))
        self._to_skip -= skipped
        missing = MAX_BASELINE - len(self._baseline_values)
        self._baseline_values = np.concatenate([self._baseline_values, finite[skipped:][:missing]])
        if len(self._baseline_values) >= MIN_BASELINE:
            self._baseline = median(self._baseline_values)

    def _grow(self, points: int) -> None:
        count = len(self)
        capacity = (count + points) * 5 // 4 + _INITIAL_CAPACITY  # spare capacity, to move points rarely
        for name in ("_times", "_steps", "_values"):
            old = getattr(self, name)
            new = np.empty(capacity, old.dtype)
            new[:count] = old[self._begin : self._end]
            setattr(self, name, new)
        self._begin, self._end = 0, count

    def _sort(self) -> None:
        order = np.argsort(self.times_ns, kind="stable")
        for column in (self.times_ns, self.steps, self.values):
            column[:] = column[order]
        # Points that came late are evaluated, and all that follow them again.
        self.unevaluated = len(self) - int(np.argmax(order >= len(self) - self.unevaluated))

    def _drop_old(self) -> None:
        # Keeps the whole window that ends with the first point that was not evaluated.
        self._begin = max(self._begin, self._end - self._retention.points - self.unevaluated)
        min_kept = self._retention.min_kept + self.unevaluated
        kept_since_ns = int(self._times[self._end - 1]) - self._retention.keep_ns
        if len(self) > min_kept and self._times[self._begin] < kept_since_ns:
            self._begin += min(self.since(kept_since_ns).start, len(self) - min_kept)
