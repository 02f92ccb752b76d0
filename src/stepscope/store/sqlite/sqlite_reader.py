"""Reads the SQLite store, also while another process writes it."""

from __future__ import annotations

import contextlib
import dataclasses
import sqlite3
import struct
from typing import TYPE_CHECKING, Any

import zstandard

from stepscope.schema.run import RunInfo, segments_of
from stepscope.schema.series import Selection
from stepscope.store.base import Counter, Reader, SetAside
from stepscope.store.sqlite import history, tables
from stepscope.store.sqlite.alert_rows import read_alerts, read_findings, read_notices
from stepscope.store.sqlite.checksums import DamagedRowError, check
from stepscope.store.sqlite.connecting import connect_to_read, store_error
from stepscope.store.sqlite.event_rows import (
    read_array,
    read_array_numbers,
    read_arrays,
    read_events,
    read_events_since,
)
from stepscope.store.sqlite.newest import read_newest
from stepscope.store.sqlite.process_rows import read_processes, read_runs
from stepscope.store.sqlite.series_rows import read_axis, read_keys, read_series, read_series_parts
from stepscope.store.sqlite.summaries import read_summaries

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from stepscope.schema.record import Event, StoredArray
    from stepscope.schema.run import Process
    from stepscope.schema.series import Axis, Buckets, Points, SeriesInfo, Source
    from stepscope.store.base import SeriesSummary

# Errors from reading a file that is damaged, or forged.
_DAMAGE = (
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    sqlite3.Error,
    StopIteration,
    struct.error,
    TypeError,
    ValueError,
    zstandard.ZstdError,
)


class SqliteReader(Reader):
    """Reads a store that another process may be writing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection = connect_to_read(path)

    def runs(self) -> list[RunInfo]:
        """All runs, oldest first."""
        with self._view():
            processes: dict[str, list[Process]] = {}
            for process in read_processes(self._connection):
                processes.setdefault(process.run_id, []).append(process)
            return [
                RunInfo(run_id, name, project, created_ns, segments_of(processes[run_id]))
                for run_id, name, project, created_ns in read_runs(self._connection)
                if run_id in processes
            ]

    def processes(self, run_id: str) -> list[Process]:
        """Every process that recorded a run, in the order of their first record."""
        with self._view():
            return read_processes(self._connection, run_id)

    def keys(
        self, run_id: str, axis: Axis = "step", *, limit: int | None = None, after: str | None = None
    ) -> list[SeriesInfo]:
        """The keys of a run on an axis in alphabetical order, a page of them where a limit is given."""
        with self._view():
            return read_keys(self._connection, run_id, axis, limit, after)

    def axis(self, run_id: str, key: str) -> Axis | None:
        """The axis of a key; of two, that of logged values comes first. None when there is no such key."""
        with self._view():
            return read_axis(self._connection, run_id, key)

    def sources(self, run_id: str) -> dict[Source, list[str]]:
        """The sources of a run's series, and the keys of each, in the order they were first stored."""
        keys_by_source: dict[Source, list[str]] = {}
        with self._view():
            for series in read_series(self._connection, run_id):
                keys_by_source.setdefault(series.source, []).append(series.key)
        return keys_by_source

    def summaries(self, run_id: str, keys: Collection[str] | None = None) -> list[SeriesSummary]:
        """Summaries of all series of a run, or of some keys; the cost does not grow with their length."""
        with self._view():
            return read_summaries(self._connection, run_id, keys)

    def points(self, selection: Selection) -> Points:
        """Every point of a series, in the order it was logged."""
        with self._view():
            points = history.read_points(self._connection, selection)

        def unpack_times() -> NDArray[np.int64]:
            with self._reporting_damage():
                return points.unpack_times()

        return dataclasses.replace(points, unpack_times=unpack_times)

    def newest(
        self, run_id: str, segment: str, keys: Sequence[str], rows: int
    ) -> dict[Source, dict[str, Points]]:
        """The newest points of some keys of a segment, at most `rows` of each, by source."""
        with self._view():
            return read_newest(self._connection, run_id, segment, keys, rows)

    def buckets(
        self, selection: Selection, most: int, low: int | None = None, high: int | None = None
    ) -> Buckets:
        """A series in at most `most` buckets, between two steps (or seconds) where given."""
        with self._view():
            return history.read_buckets(self._connection, selection, most, low, high)

    def events(self, run_id: str, kind: str | Collection[str] | None = None) -> list[Event]:
        """The events of a run, of one kind, of several or of all, oldest first."""
        kinds = [kind] if isinstance(kind, str) else kind
        with self._view():
            return read_events(self._connection, run_id, kinds)

    def arrays(self, run_id: str, key: str) -> list[tuple[int | None, NDArray[np.generic]]]:
        """Steps and arrays logged under a key, oldest first."""
        with self._view():
            return read_arrays(self._connection, run_id, key)

    def stored_arrays(self, run_id: str) -> Iterator[StoredArray]:
        """All arrays of a run, in the order they were stored; one at a time, because they may be large."""
        with self._view():
            numbers = read_array_numbers(self._connection, run_id)
        for number in numbers:
            with self._view():
                array = read_array(self._connection, run_id, number)
            if array is not None:
                yield array

    def alerts(self, run_id: str) -> list[dict[str, Any]]:
        """The alerts of a run, oldest first."""
        with self._view():
            return read_alerts(self._connection, run_id)

    def notices(self, run_id: str | None = None) -> list[dict[str, Any]]:
        """The notices of a run, or of all runs, and their channels; oldest first."""
        with self._view():
            return read_notices(self._connection, run_id)

    def findings(self, run_id: str) -> list[dict[str, Any]]:
        """The findings of a run, oldest first; `open` says whether each is open."""
        with self._view():
            return read_findings(self._connection, run_id)

    def set_aside(self) -> list[SetAside]:
        """The journals that cannot be read or stored for now, by their paths."""
        with self._view():
            if tables.version_of(self._connection) < tables.SET_ASIDE_VERSION:
                return []
            rows = self._connection.execute(
                "SELECT path, reason, advice, since_ns, checksum FROM set_aside ORDER BY path"
            ).fetchall()
            for *row, expected in rows:
                check("set_aside", expected, *row)
            return [SetAside(*row) for *row, _ in rows]

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

    def count(self, selection: Selection) -> int:
        """How many points a series has."""
        with self._view():
            parts = read_series_parts(self._connection, selection)
            return sum({part.series_id: part.points for part in parts}.values())

    def file_version(self) -> int:
        """The version of the file's tables."""
        with self._view():
            return tables.version_of(self._connection)

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

    def progress_of_all(self) -> dict[int, int]:
        """How far each journal file was ingested."""
        with self._view():
            return dict(self._connection.execute("SELECT file_id, offset FROM journal").fetchall())

    def verify(self) -> None:
        """Raises StoreError when the file is damaged; reads all of it, which takes time."""
        with self._view():
            (problem,) = self._connection.execute("PRAGMA quick_check(1)").fetchone()
            if problem != "ok":
                raise DamagedRowError(problem)
            runs = [run_id for run_id, *_ in read_runs(self._connection)]
        for run_id in runs:
            self.processes(run_id)
            self.events(run_id)
            self.alerts(run_id)
            for axis in ("step", "seconds"):
                for series in self.keys(run_id, axis):
                    self.points(Selection(run_id, series.key, axis=axis)).times_ns  # noqa: B018 - unpacks them

    def bytes_used(self) -> int:
        """The size of the store on disk: pages in use, without free ones."""
        with self._view():
            (pages,) = self._connection.execute("PRAGMA page_count").fetchone()
            (free,) = self._connection.execute("PRAGMA freelist_count").fetchone()
            (size,) = self._connection.execute("PRAGMA page_size").fetchone()
            return int((pages - free) * size)

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()

    def __del__(self) -> None:
        # A run is often read in one expression and never closed; newer Pythons warn about that.
        if hasattr(self, "_connection"):
            self._connection.close()

    @contextlib.contextmanager
    def _view(self) -> Iterator[None]:
        """Reads several queries from one snapshot; raises StoreError where the file is damaged."""
        with self._reporting_damage():
            if self._connection.in_transaction:
                yield
            else:
                with _read_transaction(self._connection):
                    yield

    @contextlib.contextmanager
    def _reporting_damage(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.ProgrammingError:  # closed, or misused: not damage
            raise
        except _DAMAGE as error:
            raise store_error(
                f"{self.path} cannot be read, it seems to be damaged: {error}. {tables.RESTORE}", error
            ) from error


@contextlib.contextmanager
def _read_transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("COMMIT")
