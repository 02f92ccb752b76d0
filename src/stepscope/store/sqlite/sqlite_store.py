"""Writes the SQLite store: one file, a write-ahead log, one writer."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope.store.base import Store
from stepscope.store.sqlite.alert_rows import (
    SqliteAlertBook,
    clear_finding,
    put_finding,
)
from stepscope.store.sqlite.checksums import check, checksum
from stepscope.store.sqlite.connecting import DAMAGED_SUFFIX, IN_MEMORY, connect_to_write, store_error
from stepscope.store.sqlite.event_rows import write_array, write_event
from stepscope.store.sqlite.log_check import CommitCount
from stepscope.store.sqlite.process_rows import ProcessWriter
from stepscope.store.sqlite.sealing import Sealer
from stepscope.store.sqlite.sqlite_reader import SqliteReader

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from stepscope.schema.record import Event
    from stepscope.schema.run import Process
    from stepscope.schema.series import Source
    from stepscope.store.base import SetAside


class SqliteStore(SqliteReader, Store):
    """The store's one writer. The caller holds the agent's lock: SQLite's own lock is not enough."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection = connect_to_write(path)
        self._opened = None if path == IN_MEMORY else path.stat()
        self._sealer = Sealer(self._connection)
        self._processes = ProcessWriter(self._connection)
        self._alert_book = SqliteAlertBook(self._connection, self._view)
        self._commits = CommitCount(self._connection, None if path == IN_MEMORY else path)

    @property
    def alert_book(self) -> SqliteAlertBook:
        """Its alerts and notices."""
        return self._alert_book

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Commits all writes of the block or none; committed writes survive a power loss."""
        with self._reporting_failure():
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

    def is_in_place(self) -> bool:
        """Whether the file at its path is still the one that was opened; raises OSError if unknown."""
        if self._opened is None:
            return True
        try:
            return os.path.samestat(self._opened, self.path.stat())
        except (FileNotFoundError, NotADirectoryError):
            return False

    def damaged_copies(self) -> list[Path]:
        """The copy of a damaged write-ahead log."""
        copy = Path(f"{self.path}-wal{DAMAGED_SUFFIX}")
        return [copy] if copy.exists() else []

    def leave_open(self) -> None:
        """Drops the connection without ever closing the file, not even at exit.

        When SQLite closes a database it deletes the write-ahead log by its path: that would be the log of
        the database that is there by now, with its newest transactions.
        """
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._connection))
        self._connection = sqlite3.connect(":memory:")
        self._commits.close(is_log_empty=False)

    @contextlib.contextmanager
    def attempt(self) -> Iterator[None]:
        """Within a transaction: rolls back the writes of the block, and only those, if it raises."""
        with self._reporting_failure():
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
        with self._view():
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
        with self._reporting_failure():
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

    @contextlib.contextmanager
    def _reporting_failure(self) -> Iterator[None]:
        """Raises StoreError instead of an error of SQLite."""
        try:
            yield
        except sqlite3.Error as error:
            raise store_error(f"{self.path} cannot be written: {error}.", error) from error

    def _clear_caches(self) -> None:
        """Clears caches that may differ from the file."""
        self._sealer.clear()
        self._processes.clear()

    def _fold_log(self) -> bool:
        """Folds the log into the file; False where a reader has prevented that."""
        is_busy, _, _ = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return not is_busy
