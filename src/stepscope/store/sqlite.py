"""The default store: one SQLite file, a write-ahead log, one writer."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import sqlite3
import struct
from typing import TYPE_CHECKING, Any

import zstandard

from stepscope.errors import StoreError
from stepscope.schema.run import RunInfo, segments_of
from stepscope.schema.series import Selection
from stepscope.store import history, tables
from stepscope.store.alert_rows import (
    SqliteAlertBook,
    clear_finding,
    put_finding,
    read_alerts,
    read_findings,
    read_notices,
)
from stepscope.store.base import Reader, SetAside, Store
from stepscope.store.checksums import DamagedRowError, check, checksum
from stepscope.store.connecting import IN_MEMORY, connect_to_read, connect_to_write
from stepscope.store.event_rows import read_arrays, read_events, write_array, write_event
from stepscope.store.following import ChangeReader
from stepscope.store.log_check import CommitCount
from stepscope.store.newest import read_newest
from stepscope.store.process_rows import ProcessWriter, read_processes, read_runs
from stepscope.store.sealing import Sealer
from stepscope.store.series_rows import read_axis, read_keys, read_series
from stepscope.store.summaries import read_summaries

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from stepscope.schema.record import Event
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


class SqliteReader(ChangeReader, Reader):
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
            raise StoreError(
                f"{self.path} cannot be read, it seems to be damaged: {error}. {tables.RESTORE}"
            ) from error


class SqliteStore(SqliteReader, Store):
    """The store's one writer. The caller holds the agent's lock: SQLite's own lock is not enough."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection = connect_to_write(path)
        self._sealer = Sealer(self._connection)
        self._processes = ProcessWriter(self._connection)
        self._alert_book = SqliteAlertBook(self._connection)
        self._commits = CommitCount(self._connection, None if path == IN_MEMORY else path)

    @property
    def alert_book(self) -> SqliteAlertBook:
        """Its alerts and notices."""
        return self._alert_book

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Commits all writes of the block or none; committed writes survive a power loss."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._commits.add()
            self._connection.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            self._clear_caches()
            raise
        self._commits.mark_on_disk()

    def leave_open(self) -> None:
        """Drops the connection without ever closing the file, not even at exit; `attend._close` says why."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._connection))
        self._connection = sqlite3.connect(":memory:")
        self._commits.close(is_log_empty=False)

    @contextlib.contextmanager
    def attempt(self) -> Iterator[None]:
        """Within a transaction: rolls back the writes of the block, and only those, if it raises."""
        self._connection.execute("SAVEPOINT attempt")
        try:
            yield
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK TO attempt")
                self._connection.execute("RELEASE attempt")
            self._clear_caches()
            raise
        self._connection.execute("RELEASE attempt")

    def put_set_aside(self, journals: Collection[SetAside]) -> None:
        """Replaces the list of journals that cannot be read or stored for now."""
        self._connection.execute("DELETE FROM set_aside")
        self._connection.executemany(
            "INSERT INTO set_aside VALUES (?, ?, ?, ?, ?)",
            [
                (*(row := (journal.path, journal.reason, journal.advice, journal.since_ns)), checksum(*row))
                for journal in journals
            ],
        )

    def put_process(self, process: Process) -> None:
        """Stores a process, or its new status."""
        self._processes.write(process)

    def append(
        self,
        source: Source,
        keys: Sequence[str],
        steps: NDArray[np.int64],
        times_ns: NDArray[np.int64],
        values: NDArray[np.float64],
    ) -> None:
        """Adds rows of one key set; `values` has a row for each step and a column for each key."""
        self._sealer.append(source, keys, steps, times_ns, values)

    def seal(self, source: Source) -> None:
        """Packs the unsealed rows of a source that has ended, on both axes."""
        self._sealer.seal(source)

    def put_event(self, run_id: str, event: Event) -> None:
        """Stores an event."""
        write_event(self._connection, run_id, event)

    def put_array(self, run_id: str, segment: str, rank: int, fields: dict[str, Any], raw: bytes) -> None:
        """Stores an array; `fields` has key, step, time, dtype and shape."""
        write_array(self._connection, (run_id, segment, rank), fields, raw)

    def put_finding(self, run_id: str, finding: Mapping[str, Any], at_ns: int) -> None:
        """Stores a finding under its key, or updates it."""
        put_finding(self._connection, run_id, finding, at_ns)

    def clear_finding(self, run_id: str, key: str, at_ns: int) -> None:
        """Closes a finding."""
        clear_finding(self._connection, run_id, key, at_ns)

    def progress(self, file_id: int) -> tuple[int, int]:
        """How far a journal file was ingested, and how many of its records were lost."""
        row = self._connection.execute(
            "SELECT offset, lost, checksum FROM journal WHERE file_id = ?", (file_id,)
        ).fetchone()
        if row is None:
            return 0, 0
        offset, lost, expected = row
        check("journal", expected, file_id, offset, lost)
        return offset, lost

    def set_progress(self, file_id: int, offset: int, lost: int) -> None:
        """Stores how far a journal file is ingested, within the transaction that stores its rows."""
        row = (file_id, offset, lost)
        self._connection.execute("INSERT OR REPLACE INTO journal VALUES (?, ?, ?, ?)", (*row, checksum(*row)))

    def forget_progress(self, file_ids: Sequence[int]) -> None:
        """Deletes the offsets of journal files that no longer exist."""
        self._connection.executemany(
            "DELETE FROM journal WHERE file_id = ?", [(file_id,) for file_id in file_ids]
        )

    def delete_run(self, run_id: str) -> None:
        """Deletes a run and frees its space."""
        with self.transaction():
            self._connection.execute("DELETE FROM run WHERE id = ?", (run_id,))
            # Its notices stay: they are the record of what was sent.
            self._connection.execute("DELETE FROM tally WHERE run_id = ? AND what <> 'notice'", (run_id,))
        self._clear_caches()
        # As a script: the pragma frees one page for each result row, and execute() fetches only one.
        self._connection.executescript("PRAGMA incremental_vacuum")
        self._fold_log()

    def close(self) -> None:
        """Folds the write-ahead log into the file, so that it can be read in a read-only folder."""
        is_log_empty = False
        with contextlib.suppress(sqlite3.Error):
            is_log_empty = self._fold_log()
        super().close()
        self._commits.close(is_log_empty=is_log_empty)

    def _clear_caches(self) -> None:
        """Clears caches that may differ from the file."""
        self._sealer.clear()
        self._processes.clear()

    def _fold_log(self) -> bool:
        """Folds the log into the file; False where a reader has prevented that."""
        is_busy, _, _ = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return not is_busy


@contextlib.contextmanager
def _read_transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("COMMIT")
