"""Reads what is new in the SQLite store: the counters of each series, and its points after a position."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepscope.store import history
from stepscope.store.event_rows import read_events_since
from stepscope.store.series_rows import read_series

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from stepscope.schema.record import Event
    from stepscope.schema.series import Points, Selection, Source


@dataclass(frozen=True)
class Counter:
    """How many points a series has, and which is the last."""

    series_id: int
    """Its number in the store, which never changes."""
    key: str
    source: Source
    points: int
    last_step: int | None
    last_ns: int


class ChangeReader(ABC):
    """Queries for readers that follow a store while it is written; part of `SqliteReader`."""

    _connection: sqlite3.Connection

    @abstractmethod
    def _view(self) -> AbstractContextManager[None]:
        """Reads within one snapshot; implemented by the reader."""

    @contextlib.contextmanager
    def moment(self) -> Iterator[None]:
        """Answers all queries of the block from the same snapshot."""
        with self._view():
            yield

    def version(self) -> int:
        """A number that changes when another connection has written; cheap to read."""
        with self._view():
            return int(self._connection.execute("PRAGMA data_version").fetchone()[0])

    def counters(self, run_id: str) -> list[Counter]:
        """The counters of all series of a run, in the order they were first stored."""
        with self._view():
            return [
                Counter(series.id, series.key, series.source, series.points, *series.newest[1:])
                for series in read_series(self._connection, run_id)
            ]

    def points_since(self, selection: Selection, after: int) -> Points:
        """The points of `points` without the first `after`; older chunks are not unpacked."""
        with self._view():
            return history.read_points_since(self._connection, selection, after)

    def events_since(self, run_id: str, after: int) -> list[tuple[int, Event]]:
        """The events of a run that were stored after event number `after`, with their numbers."""
        with self._view():
            return read_events_since(self._connection, run_id, after)

    def newest_event(self, run_id: str) -> int:
        """The number of the event of a run that was stored last; 0 when it has none."""
        with self._view():
            row = self._connection.execute("SELECT max(id) FROM event WHERE run_id = ?", (run_id,)).fetchone()
            return int(row[0] or 0)

    def reach(self, selection: Selection) -> tuple[int, int] | None:
        """The first and the last step (or second) of a series; None when it has no point."""
        with self._view():
            return history.read_reach(self._connection, selection)
