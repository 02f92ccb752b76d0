"""Keeps the newest points of every series of a run, for the evaluation of rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stepscope.alerts.conditions.recent_points import RecentPoints, Retention
from stepscope.alerts.conditions.subjects import Subject

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from stepscope.alerts.conditions.recent_points import Floats, Ints
    from stepscope.alerts.conditions.tree import Name, Reach
    from stepscope.schema.series import Source

LIMIT_POINTS, KEEP_S, MAX_SERIES = 2000, 600.0, 5000
SPARK_POINTS = 20
"""Number of values in a sparkline."""


class History:
    """The newest points of one run.

    Each series keeps at most `limit_points`, and at most 1,000 points older than `keep_seconds`. Series
    beyond `max_series` are left out and counted. If `keys` is given, only these metrics are kept. Up to
    `keep_unevaluated` further points are kept until `mark_evaluated`.
    """

    def __init__(
        self,
        limit_points: int = LIMIT_POINTS,
        keep_seconds: float = KEEP_S,
        max_series: int = MAX_SERIES,
        keys: Collection[str] | None = None,
        keep_unevaluated: int = 0,
    ) -> None:
        self._retention = Retention(limit_points, int(keep_seconds * 1e9), max_unevaluated=keep_unevaluated)
        self._max_series, self._keys = max_series, keys
        self._series: dict[str, dict[Subject, RecentPoints]] = {}
        self._count = 0
        self._left_out: set[tuple[str, Subject]] = set()
        self._ranks_on: dict[tuple[str, str], set[int]] = {}
        self.subjects: dict[tuple[Name, ...], list[Subject]] = {}
        """Cached subjects of conditions by their metrics; cleared when a series is added or removed."""
        self.generation = 0
        """Incremented whenever a series is added or removed: earlier lookups may be invalid."""
        self.changed: set[str] = set()
        """Metrics with points that were not evaluated yet; the evaluation clears it."""
        self._unevaluated: set[RecentPoints] = set()
        self._columns: dict[tuple[Subject, tuple[str, ...]], list[tuple[int, RecentPoints]]] = {}
        """Cached columns of tables that are kept, and their series; cleared together with `subjects`."""

    @property
    def left_out(self) -> int:
        """How many series were left out, counted up to `max_series`."""
        return len(self._left_out)

    def holds(self, reach: Reach) -> bool:
        """Whether all points of such a window have been kept so far, however long the series."""
        return reach.points <= self._retention.min_kept and reach.seconds * 1e9 <= self._retention.keep_ns

    def forget(self, keys: Collection[str]) -> dict[str, dict[Subject, RecentPoints]]:
        """Removes the points of some metrics, so that they can be loaded again; returns them."""
        self._begin_generation()
        removed = {key: self._series.pop(key) for key in keys if key in self._series}
        self._count -= sum(map(len, removed.values()))
        return removed

    def widen(self, reach: Mapping[str, Reach]) -> None:
        """Keeps more points, if the windows of a condition need more than are kept now."""
        self._begin_generation()
        for window in reach.values():
            self._retention.points = max(self._retention.points, window.points)
            self._retention.min_kept = max(self._retention.min_kept, window.points)
            self._retention.keep_ns = max(self._retention.keep_ns, int(window.seconds * 1e9))

    def add(self, source: Source, keys: Sequence[str], steps: Ints, times_ns: Ints, values: Floats) -> None:
        """Adds rows of one source: a row of `values` for each step, a column for each key."""
        if not len(values):
            return
        place = (Subject(source.rank, source.host, source.device), tuple(keys))
        columns = self._columns.get(place)
        if columns is None:
            columns = self._kept_columns(*place)
            self._columns[place] = columns
        for column, recent in columns:
            recent.add(steps, times_ns, values[:, column])
            self.changed.add(keys[column])
            self._unevaluated.add(recent)

    def add_newer(self, key: str, subject: Subject, points: RecentPoints) -> None:
        """Adds the points of a series that are newer than its last known one."""
        recent = self._find_or_begin(key, subject)
        if recent is not None:
            newer = points.since(int(recent.times_ns[-1]) + 1 if len(recent) else 0)
            recent.add(points.steps[newer], points.times_ns[newer], points.values[newer])
            self.changed.add(key)
            self._unevaluated.add(recent)

    @property
    def unevaluated(self) -> int:
        """The largest number of points of a series that were not evaluated yet."""
        return max((recent.unevaluated for recent in self._unevaluated), default=0)

    def mark_evaluated(self) -> None:
        """Records that all rules have been evaluated with all points."""
        for recent in self._unevaluated:
            recent.unevaluated = 0
        self._unevaluated.clear()

    def of(self, key: str) -> Mapping[Subject, RecentPoints]:
        """Returns all series of a metric by subject."""
        return self._series.get(key, {})

    def find(self, key: str, subject: Subject) -> RecentPoints | None:
        """Returns the most specific series for a subject: its own, or that of a subject that covers it."""
        series = self.of(key)
        candidates = (series.get(covering) for covering in subject.from_narrow_to_broad())
        return next((recent for recent in candidates if recent is not None), None)

    def can_pair(self, subject: Subject) -> bool:
        """Whether a rank may use a device: False if only other ranks are known to use it."""
        ranks = self._ranks_on.get((subject.host, subject.device))
        return ranks is None or subject.rank is None or subject.rank in ranks

    def latest(self, rank: int | None = None, device: str = "", host: str = "") -> dict[str, float]:
        """Returns the last value of every metric of a rank, a device, or their host."""
        subject, latest = Subject(rank, host, device), {}
        for key, series in self._series.items():
            # The one with the most labels in common; of equals, the one that was logged last.
            ranked = [
                (_common_labels(other, subject), int(recent.times_ns[-1]), float(recent.values[-1]))
                for other, recent in series.items()
                if len(recent) and other.joined(subject) is not None
            ]
            if ranked:
                latest[key] = max(ranked, key=lambda candidate: candidate[:2])[2]
        return latest

    def _kept_columns(self, subject: Subject, keys: Sequence[str]) -> list[tuple[int, RecentPoints]]:
        if subject.rank is not None and subject.device:
            self._assign_device(subject.rank, (subject.host, subject.device))
        columns = ((column, self._find_or_begin(key, subject)) for column, key in enumerate(keys))
        return [(column, recent) for column, recent in columns if recent is not None]

    def _begin_generation(self) -> None:
        self.generation += 1
        self.subjects.clear()
        self._columns.clear()

    def _assign_device(self, rank: int, device: tuple[str, str]) -> None:
        ranks = self._ranks_on.setdefault(device, set())
        if rank not in ranks:
            ranks.add(rank)
            self._begin_generation()

    def _find_or_begin(self, key: str, subject: Subject) -> RecentPoints | None:
        if self._keys is not None and key not in self._keys:
            return None
        known = self._series.get(key, {}).get(subject)
        if known is not None:
            return known
        if self._count >= self._max_series:
            if len(self._left_out) < self._max_series:
                self._left_out.add((key, subject))
            return None
        self._count += 1
        self._begin_generation()
        recent = RecentPoints(self._retention)
        self._series.setdefault(key, {})[subject] = recent
        return recent


def _common_labels(subject: Subject, other: Subject) -> int:
    is_same_rank = subject.rank is not None and subject.rank == other.rank
    return (
        is_same_rank
        + bool(subject.host and subject.host == other.host)
        + bool(subject.device and subject.device == other.device)
    )


def spark(recent: RecentPoints) -> tuple[float, ...]:
    """Returns the last values of a series, oldest first."""
    return tuple(np.asarray(recent.values[-SPARK_POINTS:]).tolist())
