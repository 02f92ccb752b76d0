"""The default store: one SQLite file, a write-ahead log, one writer."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from typing import TYPE_CHECKING, Any

import numpy as np

from stepscope.errors import StoreError
from stepscope.schema.record import Event
from stepscope.schema.run import Process, RunInfo, segments_of
from stepscope.schema.series import SeriesInfo
from stepscope.store import history, tables
from stepscope.store.base import Reader, Store
from stepscope.store.sealing import Sealer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from stepscope.schema.series import Buckets, Points, Selection, Source

_PROCESS = (
    "segment, rank, host, pid, role, status, reason, exit_code, started_ns, ended_ns, last_ns,"
    " dropped, lost, facts"
)


class SqliteReader(Reader):
    """Reads a store somebody else may be writing at the moment."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection = _connect_read_only(path)

    def runs(self) -> list[RunInfo]:
        """All runs, oldest first."""
        processes: dict[str, list[Process]] = {}
        for process in self._processes():
            processes.setdefault(process.run_id, []).append(process)
        rows = self._connection.execute(
            "SELECT id, name, project, created_ns FROM run ORDER BY created_ns, id"
        )
        return [
            RunInfo(*row, segments=segments_of(processes[row[0]]))
            for row in rows
            if row[0] in processes
        ]

    def processes(self, run_id: str) -> list[Process]:
        """Every process that recorded a run, in the order they were met."""
        return self._processes(run_id)

    def keys(self, run_id: str, *, limit: int | None = None, after: str = "") -> list[SeriesInfo]:
        """The keys of a run in alphabetical order, a page of them where a limit is given."""
        rows = self._connection.execute(
            "SELECT key, sum(points), group_concat(DISTINCT rank), last, max(last_ns) FROM series"
            " WHERE run_id = ? AND key > ? GROUP BY key ORDER BY key LIMIT ?",
            (run_id, after, -1 if limit is None else limit),
        )
        return [
            SeriesInfo(key, points, tuple(sorted(int(rank) for rank in ranks.split(","))), last)
            for key, points, ranks, last, _ in rows
        ]

    def points(self, selection: Selection) -> Points:
        """Every point of a series, in the order it was logged."""
        with self._snapshot():
            return history.read_points(self._connection, selection)

    def buckets(
        self, selection: Selection, most: int, low: int | None = None, high: int | None = None
    ) -> Buckets:
        """A series in at most so many buckets, between two steps (or seconds) where given."""
        with self._snapshot():
            return history.read_buckets(self._connection, selection, most, low, high)

    def events(self, run_id: str, kind: str | None = None) -> list[Event]:
        """What happened in a run, oldest first."""
        rows = self._connection.execute(
            "SELECT kind, time_ns, step, rank, segment, fields FROM event"
            " WHERE run_id = ? AND (? IS NULL OR kind = ?) ORDER BY time_ns, id",
            (run_id, kind, kind),
        )
        return [Event(*row[:5], fields=json.loads(row[5])) for row in rows]

    def arrays(self, run_id: str, key: str) -> list[tuple[int | None, NDArray[np.generic]]]:
        """Steps and arrays logged under a key, oldest first."""
        rows = self._connection.execute(
            "SELECT step, fields, data FROM array WHERE run_id = ? AND key = ? ORDER BY id",
            (run_id, key),
        )
        found = []
        for step, text, data in rows:
            fields = json.loads(text)
            shaped = np.frombuffer(data, fields["dtype"]).reshape(fields["shape"])
            found.append((step, shaped))
        return found

    def alerts(self, run_id: str) -> list[dict[str, Any]]:
        """The alerts of a run, oldest first."""
        return self._documents(
            "SELECT rule, severity, message, fired_ns, resolved_ns, fields FROM alert"
            " WHERE run_id = ? ORDER BY fired_ns",
            run_id,
        )

    def findings(self, run_id: str) -> list[dict[str, Any]]:
        """The findings of a run, oldest first."""
        return self._documents(
            "SELECT problem, severity, opened_ns, closed_ns, fields FROM finding"
            " WHERE run_id = ? ORDER BY opened_ns",
            run_id,
        )

    def bytes_used(self) -> int:
        """What the store takes on disk: pages in use, free ones left out."""
        (pages,) = self._connection.execute("PRAGMA page_count").fetchone()
        (free,) = self._connection.execute("PRAGMA freelist_count").fetchone()
        (size,) = self._connection.execute("PRAGMA page_size").fetchone()
        return int((pages - free) * size)

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()

    def _documents(self, query: str, run_id: str) -> list[dict[str, Any]]:
        cursor = self._connection.execute(query, (run_id,))
        names = [column[0] for column in cursor.description]
        found = []
        for row in cursor:
            document = dict(zip(names, row, strict=True))
            document.update(json.loads(document.pop("fields")))
            found.append(document)
        return found

    def _processes(self, run_id: str | None = None) -> list[Process]:
        rows = self._connection.execute(
            f"SELECT run_id, name, project, {_PROCESS} FROM process JOIN run ON run.id = run_id"  # noqa: S608 - no part of it comes from outside
            " WHERE ? IS NULL OR run_id = ? ORDER BY process.id",
            (run_id, run_id),
        )
        return [_process(row) for row in rows]

    @contextlib.contextmanager
    def _snapshot(self) -> Iterator[None]:
        """Holds the view of one moment over several queries."""
        if self._connection.in_transaction:
            yield
            return
        self._connection.execute("BEGIN")
        try:
            yield
        finally:
            self._connection.execute("COMMIT")


class SqliteStore(SqliteReader, Store):
    """The store's one writer. The caller holds the agent's lock: SQLite's own is not enough for us."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            # FULL: a journal is deleted once its rows are committed, so they must outlive a power cut.
            self._connection.executescript(
                "PRAGMA busy_timeout = 5000; PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL;"
                "PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA temp_store = MEMORY;"
            )
            tables.migrate(self._connection, path)
        except sqlite3.DatabaseError as error:
            self._connection.close()
            raise StoreError(f"{path} cannot be opened as a store: {error}.") from error
        except StoreError:
            self._connection.close()
            raise
        self._sealer = Sealer(self._connection)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """What is told within it is kept together or not at all, and once kept survives power loss."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            self._sealer.forget()
            raise

    def put_process(self, process: Process) -> None:
        """Notes a process, or what has become of it."""
        self._connection.execute(
            "INSERT OR IGNORE INTO run VALUES (?, ?, ?, ?)",
            (process.run_id, process.name, process.project, process.started_ns),
        )
        self._connection.execute(
            f"INSERT INTO process (run_id, {_PROCESS})"  # noqa: S608 - no part of it comes from outside
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
            " ON CONFLICT DO UPDATE SET status = excluded.status, reason = excluded.reason,"
            " exit_code = excluded.exit_code, ended_ns = excluded.ended_ns, last_ns = excluded.last_ns,"
            " dropped = excluded.dropped, lost = excluded.lost, facts = excluded.facts",
            (
                process.run_id,
                process.segment,
                process.rank,
                process.host,
                process.pid,
                process.role,
                process.status,
                process.reason,
                process.exit_code,
                process.started_ns,
                process.ended_ns,
                process.last_ns,
                process.dropped,
                process.lost,
                json.dumps(process.facts),
            ),
        )

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

    def seal(self, run_id: str, segment: str, rank: int, host: str) -> None:
        """Packs what is still loose of a process that has ended."""
        self._sealer.seal(run_id, segment, rank, host)

    def put_event(self, run_id: str, event: Event) -> None:
        """Notes an event."""
        self._connection.execute(
            "INSERT INTO event (run_id, segment, rank, kind, time_ns, step, fields)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                run_id,
                event.segment,
                event.rank,
                event.kind,
                event.time_ns,
                event.step,
                json.dumps(event.fields),
            ),
        )

    def put_array(
        self, run_id: str, segment: str, rank: int, fields: dict[str, Any], raw: bytes
    ) -> None:
        """Keeps an array; `fields` has key, step, time, dtype and shape."""
        self._connection.execute(
            "INSERT INTO array (run_id, segment, rank, key, time_ns, step, fields, data)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (run_id, segment, rank, fields["key"], fields["time"], fields["step"])
            + (json.dumps(fields), raw),
        )

    def progress(self, file_id: int) -> tuple[int, int]:
        """How far a journal file was ingested, and how many of its records were lost."""
        row = self._connection.execute(
            "SELECT offset, lost FROM journal WHERE file_id = ?", (file_id,)
        ).fetchone()
        return row or (0, 0)

    def set_progress(self, file_id: int, offset: int, lost: int) -> None:
        """Notes how far a journal file is ingested, within the transaction that holds its rows."""
        self._connection.execute(
            "INSERT OR REPLACE INTO journal VALUES (?, ?, ?)", (file_id, offset, lost)
        )

    def forget_progress(self, file_ids: Sequence[int]) -> None:
        """Drops the notes on files that no longer exist."""
        self._connection.executemany(
            "DELETE FROM journal WHERE file_id = ?", [(one,) for one in file_ids]
        )

    def delete_run(self, run_id: str) -> None:
        """Deletes a run and gives its space back."""
        with self.transaction():
            self._connection.execute("DELETE FROM run WHERE id = ?", (run_id,))
        self._connection.execute("PRAGMA incremental_vacuum").fetchall()

    def close(self) -> None:
        """Folds the write-ahead log into the file, so that it can be read where nothing may be written."""
        with contextlib.suppress(sqlite3.Error):
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        super().close()


def _process(row: tuple[Any, ...]) -> Process:
    names = ["run_id", "name", "project", *_PROCESS.split(", ")]
    fields = dict(zip(names, row, strict=True))
    return Process(**{**fields, "facts": json.loads(fields["facts"])})


def _connect_read_only(path: Path) -> sqlite3.Connection:
    if not path.exists():
        raise StoreError(
            f"There is no store at {path}. Record a run first, or name another folder with "
            "STEPSCOPE_DIR."
        )
    last_error: sqlite3.Error | None = None
    # A file on read-only media cannot have its shared-memory index made: read it as unchanging.
    for mode in ("mode=ro", "mode=ro&immutable=1"):
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?{mode}",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            connection.executescript(
                "PRAGMA busy_timeout = 5000; PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;"
                "PRAGMA query_only = ON;"
            )
            tables.check(tables.version_of(connection), path)
        except sqlite3.Error as error:
            connection.close()
            last_error = error
        else:
            return connection
    raise StoreError(f"{path} cannot be read as a store: {last_error}.") from last_error
