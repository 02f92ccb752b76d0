"""Remembers the newest points of every series of a run, for rules to look at."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from stepscope.alerts.conditions.recent import Recent, Room

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from stepscope.alerts.conditions.recent import Floats, Whole
    from stepscope.alerts.conditions.tree import Name, Reach
    from stepscope.schema.series import Source

LIMIT_POINTS, KEEP_S, MAX_SERIES = 2000, 600.0, 5000
SPARK_POINTS = 20
"""So many values are shown to a person."""


class Subject(NamedTuple):
    """Whose numbers they are; what does not apply is None or empty."""

    rank: int | None = None
    host: str = ""
    device: str = ""

    def covers(self, other: Subject) -> bool:
        """Whether what is said of it is said of the other one, too: it names no label that differs."""
        return (
            self.rank in (None, other.rank)
            and self.host in ("", other.host)
            and self.device in ("", other.device)
        )

    def joined(self, other: Subject) -> Subject | None:
        """What both are about together; None where they are about different things."""
        if not (
            (self.rank is None or other.rank is None or self.rank == other.rank)
            and (not self.host or not other.host or self.host == other.host)
            and (not self.device or not other.device or self.device == other.device)
        ):
            return None
        rank = other.rank if self.rank is None else self.rank
        return Subject(rank, self.host or other.host, self.device or other.device)

    def from_narrow_to_broad(self) -> Iterator[Subject]:
        """Itself, then all that cover it."""
        yield self
        rank, host, device = self
        yield from (Subject(rank, host), Subject(None, host, device), Subject(rank, "", device))
        yield from (Subject(None, host), Subject(rank), Subject(None, "", device), Subject())


class History:
    """The newest points of one run.

    Each series keeps at most `limit_points`, and of those older than `keep_seconds` no more than 1,000.
    Series beyond `most_series` are left out and counted. With `keys`, no others are kept. Up to
    `keep_unjudged` points are kept beside these until `all_judged`.
    """

    def __init__(
        self,
        limit_points: int = LIMIT_POINTS,
        keep_seconds: float = KEEP_S,
        most_series: int = MAX_SERIES,
        keys: Collection[str] | None = None,
        keep_unjudged: int = 0,
    ) -> None:
        self._room = Room(limit_points, int(keep_seconds * 1e9), unjudged=keep_unjudged)
        self._most_series, self._keys = most_series, keys
        self._series: dict[str, dict[Subject, Recent]] = {}
        self._count = 0
        self._left_out: set[tuple[str, Subject]] = set()
        self._ranks_on: dict[tuple[str, str], set[int]] = {}
        self.subjects: dict[tuple[Name, ...], list[Subject]] = {}
        """Whom conditions on some metrics are about, as was found; forgotten when somebody is new."""
        self.generation = 0
        """Another number whenever a series has come or gone: what was looked up before may not hold."""
        self.changed: set[str] = set()
        """Metrics that have points which nobody has judged yet; whoever judges them empties it."""
        self._unjudged: set[Recent] = set()
        self._columns: dict[tuple[Subject, tuple[str, ...]], list[tuple[int, Recent]]] = {}
        """Which columns of a table are kept, and where; forgotten together with `subjects`."""

    @property
    def left_out(self) -> int:
        """How many series there was no room for; counted up to as many as there is room for."""
        return len(self._left_out)

    def holds(self, reach: Reach) -> bool:
        """Whether all that a window looks at was kept so far, however long the series."""
        return reach.points <= self._room.anyway and reach.seconds * 1e9 <= self._room.keep_ns

    def forget(self, keys: Collection[str]) -> dict[str, dict[Subject, Recent]]:
        """Lets go of the points of some metrics, to be given them anew; returns what there was."""
        self._begin_generation()
        gone = {key: self._series.pop(key) for key in keys if key in self._series}
        self._count -= sum(map(len, gone.values()))
        return gone

    def widen(self, reach: Mapping[str, Reach]) -> None:
        """Makes room for the windows of a condition, where they are wider than what is kept anyway."""
        self._begin_generation()
        for one in reach.values():
            self._room.points = max(self._room.points, one.points)
            self._room.anyway = max(self._room.anyway, one.points)
            self._room.keep_ns = max(self._room.keep_ns, int(one.seconds * 1e9))

    def add(self, source: Source, keys: Sequence[str], steps: Whole, times_ns: Whole, values: Floats) -> None:
        """Takes rows of one source: a row of `values` for each step, a column for each key."""
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
            self._unjudged.add(recent)

    def add_newer(self, key: str, subject: Subject, points: Recent) -> None:
        """Takes those points of a series that come after the last one that is known of it."""
        recent = self._find_or_begin(key, subject)
        if recent is not None:
            newer = points.since(int(recent.times_ns[-1]) + 1 if len(recent) else 0)
            recent.add(points.steps[newer], points.times_ns[newer], points.values[newer])
            self.changed.add(key)
            self._unjudged.add(recent)

    @property
    def unjudged(self) -> int:
        """How many points of a series wait for rules to look at them, at most."""
        return max((recent.unjudged for recent in self._unjudged), default=0)

    def all_judged(self) -> None:
        """All rules have looked at all points there are."""
        for recent in self._unjudged:
            recent.unjudged = 0
        self._unjudged.clear()

    def of(self, key: str) -> Mapping[Subject, Recent]:
        """All series of a metric."""
        return self._series.get(key, {})

    def find(self, key: str, subject: Subject) -> Recent | None:
        """The series that tells most closely of a subject: its own, or one of something broader."""
        series = self.of(key)
        return next((series[one] for one in subject.from_narrow_to_broad() if one in series), None)

    def is_pair(self, subject: Subject) -> bool:
        """Whether a rank may be on a device: unless others are known to be, and this one is not."""
        ranks = self._ranks_on.get((subject.host, subject.device))
        return ranks is None or subject.rank is None or subject.rank in ranks

    def latest(self, rank: int | None = None, device: str = "", host: str = "") -> dict[str, float]:
        """The last value of every metric that tells of a rank, a device, or the host they are on."""
        subject, found = Subject(rank, host, device), {}
        for key, series in self._series.items():
            near = [one for one in series if len(series[one]) and one.joined(subject) is not None]
            if near:
                # The one with the most labels in common; of equals, the one that was logged last.
                best = max(near, key=lambda one: (_in_common(one, subject), int(series[one].times_ns[-1])))
                found[key] = float(series[best].values[-1])
        return found

    def _kept_columns(self, subject: Subject, keys: Sequence[str]) -> list[tuple[int, Recent]]:
        if subject.rank is not None and subject.device:
            self._place(subject.rank, (subject.host, subject.device))
        found = ((column, self._find_or_begin(key, subject)) for column, key in enumerate(keys))
        return [(column, recent) for column, recent in found if recent is not None]

    def _begin_generation(self) -> None:
        self.generation += 1
        self.subjects.clear()
        self._columns.clear()

    def _place(self, rank: int, device: tuple[str, str]) -> None:
        ranks = self._ranks_on.setdefault(device, set())
        if rank not in ranks:
            ranks.add(rank)
            self._begin_generation()

    def _find_or_begin(self, key: str, subject: Subject) -> Recent | None:
        if self._keys is not None and key not in self._keys:
            return None
        known = self._series.get(key, {}).get(subject)
        if known is not None:
            return known
        if self._count >= self._most_series:
            if len(self._left_out) < self._most_series:
                self._left_out.add((key, subject))
            return None
        self._count += 1
        self._begin_generation()
        recent = Recent(self._room)
        self._series.setdefault(key, {})[subject] = recent
        return recent


def _in_common(one: Subject, other: Subject) -> int:
    is_same_rank = one.rank is not None and one.rank == other.rank
    return (
        is_same_rank
        + bool(one.host and one.host == other.host)
        + bool(one.device and one.device == other.device)
    )


def spark(recent: Recent) -> tuple[float, ...]:
    """The last values of a series, oldest first."""
    return tuple(np.asarray(recent.values[-SPARK_POINTS:]).tolist())
