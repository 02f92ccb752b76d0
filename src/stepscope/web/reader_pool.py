"""Opens the store read-only for requests, checks it first, and reuses a few readers."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepscope.agent.process.election import agent_pid
from stepscope.errors import NotFound, StoreError
from stepscope.reading import Run, Runs
from stepscope.schema.run import RunInfo, segments_of
from stepscope.store.connecting import IN_MEMORY, connect_to_read
from stepscope.store.place import database
from stepscope.store.sqlite import SqliteReader, SqliteStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_READERS = 8
MAX_CHECK_S = 5.0
"""Maximum time of the check for damage before a store is first read; damage in the rest of a very large
store shows when that part is read."""

_CHECK_INSTRUCTIONS = 100_000
"""Instructions of the database engine between two checks of the clock."""


# Errors of code that computes with nonsensical numbers and texts: rows of a damaged file may be well-formed.
# The log has each with its traceback, in case the fault is in stepscope.
_DAMAGE_ERRORS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


class StoreDamaged(StoreError):
    """The store file cannot be read; the log says why."""


@dataclass(frozen=True)
class OpenStore:
    """A reader for the time of one request."""

    reader: SqliteReader
    runs: Runs

    def run(self, run_id: str) -> Run:
        """A run by its id, or by its name; raises NotFound."""
        processes = self.reader.processes(run_id)
        if processes:  # an id, as nearly always: no need to read all runs
            first = processes[0]
            parts = segments_of(processes)
            return Run(RunInfo(run_id, first.name, first.project, first.started_ns, parts), self.reader)
        try:
            return self.runs.run(run_id)
        except NotFound:
            # A message of its own: clients must not learn the folders of this machine.
            same_name = [run.id for run in self.runs.runs() if run.name == run_id]
            if same_name:
                count = f"{len(same_name)} runs are named {run_id[:100]!r}."
                raise NotFound(f"{count} Use one of the ids: {', '.join(same_name)}") from None
            raise NotFound(f"Run {run_id[:100]!r} is not in this store.") from None


class ReaderPool:
    """Readers of one store folder, whose file may be missing, replaced or damaged at any time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._free: list[tuple[_FileId, SqliteReader]] = []
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(MAX_READERS)
        self._checked_file: _FileId | None = None
        self._version_reader: tuple[_FileId, SqliteReader] | None = None
        self._version_lock = threading.Lock()

    @contextlib.contextmanager
    def open(self) -> Iterator[OpenStore]:
        """A reader for one request; of an empty store where there is none yet. Raises StoreError."""
        with self._slots:
            file_id, reader = self._take()
            try:
                yield OpenStore(reader, Runs(reader, self.folder))
            except NotFound:
                self._put_back(file_id, reader)
                raise
            except StoreError as error:
                reader.close()
                raise StoreDamaged(str(error)) from error
            except _DAMAGE_ERRORS as error:
                reader.close()
                raise StoreError(f"{type(error).__name__}: {error}") from error
            except BaseException:
                reader.close()  # it may be in the middle of a query
                raise
            else:
                self._put_back(file_id, reader)

    def version(self) -> tuple[object, int]:
        """A value that differs when the store has changed; cheap, and never waits for a request."""
        path = database(self.folder)
        with self._version_lock:
            if self._version_reader is None or self._version_reader[0] != _file_id(path):
                if self._version_reader is not None:
                    self._version_reader[1].close()
                self._version_reader = _open_reader(path)
            file_id, reader = self._version_reader
            return file_id, reader.version()

    def close(self) -> None:
        """Closes all readers that are not in use."""
        if self._version_reader is not None:
            self._version_reader[1].close()
            self._version_reader = None
        with self._lock:
            while self._free:
                self._free.pop()[1].close()

    def _take(self) -> tuple[_FileId, SqliteReader]:
        path = database(self.folder)
        file_id = _file_id(path)
        with self._lock:
            while self._free:
                opened_file, reader = self._free.pop()
                if opened_file == file_id:
                    return file_id, reader
                reader.close()  # its file was replaced
        try:
            if file_id is not None:
                with contextlib.suppress(NotFound):  # it is just being created
                    self._check(path, file_id)
            return _open_reader(path)
        except (StoreError, UnicodeDecodeError) as error:
            raise StoreDamaged(str(error)) from error

    def _put_back(self, file_id: _FileId, reader: SqliteReader) -> None:
        with self._lock:
            self._free.append((file_id, reader))

    def _check(self, path: Path, file_id: _FileId) -> None:
        """Checks a file for damage once, unless an agent is writing it."""
        if self._checked_file == file_id or agent_pid(self.folder) is not None:
            return
        damage = quick_check(path)
        if damage is not None:
            raise StoreDamaged(f"{path} is damaged: {damage}")
        self._checked_file = file_id


_FileId = tuple[int, int] | None
"""Device and inode of a file; None where there is none."""


def quick_check(path: Path, seconds: float = MAX_CHECK_S) -> str | None:
    """What SQLite finds wrong with a file; None if nothing was found within `seconds`."""
    connection = connect_to_read(path)
    deadline = time.monotonic() + seconds
    connection.set_progress_handler(lambda: time.monotonic() > deadline, _CHECK_INSTRUCTIONS)
    try:
        messages = [row[0] for row in connection.execute("PRAGMA quick_check(3)")]
    except sqlite3.OperationalError as error:
        return None if "interrupted" in str(error) else str(error)
    except (sqlite3.Error, UnicodeDecodeError) as error:  # it quotes names, which need not be text
        return str(error)
    finally:
        connection.close()
    return None if messages == ["ok"] else "; ".join(messages)


def _file_id(path: Path) -> _FileId:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _open_reader(path: Path) -> tuple[_FileId, SqliteReader]:
    """A reader and the id of its file; an empty store in memory where there is no file yet."""
    file_id = _file_id(path)
    if file_id is not None:
        with contextlib.suppress(NotFound):  # it is just being created
            return file_id, SqliteReader(path)
    return None, SqliteStore(IN_MEMORY)
