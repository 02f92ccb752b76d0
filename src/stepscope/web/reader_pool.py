"""Opens the store read-only for requests, checks it first, and reuses a few readers."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepscope.agent.process.election import agent_pid
from stepscope.errors import NotFound, StoreDamaged, StoreError
from stepscope.reading import Run, Runs
from stepscope.schema.run import RunInfo, segments_of
from stepscope.store.open import empty_store, find_damage, identity_of, open_reader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from stepscope.store.base import Reader

MAX_READERS = 8
MAX_CHECK_S = 5.0
"""Maximum time of the check for damage before a store is first read; damage in the rest of a very large
store shows when that part is read."""

# Errors of code that computes with nonsensical numbers and texts: rows of a damaged file may be well-formed.
# The log has each with its traceback, in case the fault is in stepscope.
_DAMAGE_ERRORS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


@dataclass(frozen=True)
class OpenStore:
    """A reader for the time of one request."""

    reader: Reader
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
        self._free: list[tuple[_StoreId, Reader]] = []
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(MAX_READERS)
        self._checked_store: _StoreId | None = None
        self._version_reader: tuple[_StoreId, Reader] | None = None
        self._version_lock = threading.Lock()

    @contextlib.contextmanager
    def open(self) -> Iterator[OpenStore]:
        """A reader for one request; of an empty store where there is none yet. Raises StoreError."""
        with self._slots:
            store_id, reader = self._take()
            try:
                yield OpenStore(reader, Runs(reader, self.folder))
            except NotFound:
                self._put_back(store_id, reader)
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
                self._put_back(store_id, reader)

    def version(self) -> tuple[object, int]:
        """A value that differs when the store has changed; cheap, and never waits for a request."""
        with self._version_lock:
            if self._version_reader is None or self._version_reader[0] != identity_of(self.folder):
                if self._version_reader is not None:
                    self._version_reader[1].close()
                self._version_reader = _open_reader(self.folder)
            store_id, reader = self._version_reader
            return store_id, reader.version()

    def close(self) -> None:
        """Closes all readers that are not in use."""
        if self._version_reader is not None:
            self._version_reader[1].close()
            self._version_reader = None
        with self._lock:
            while self._free:
                self._free.pop()[1].close()

    def _take(self) -> tuple[_StoreId, Reader]:
        store_id = identity_of(self.folder)
        with self._lock:
            while self._free:
                opened_id, reader = self._free.pop()
                if opened_id == store_id:
                    return store_id, reader
                reader.close()  # its store was replaced
        try:
            if store_id is not None:
                with contextlib.suppress(NotFound):  # it is just being created
                    self._check(store_id)
            return _open_reader(self.folder)
        except (StoreError, UnicodeDecodeError) as error:
            raise StoreDamaged(str(error)) from error

    def _put_back(self, store_id: _StoreId, reader: Reader) -> None:
        with self._lock:
            self._free.append((store_id, reader))

    def _check(self, store_id: _StoreId) -> None:
        """Checks a store for damage once, unless an agent is writing it."""
        if self._checked_store == store_id or agent_pid(self.folder) is not None:
            return
        damage = find_damage(self.folder, MAX_CHECK_S)
        if damage is not None:
            raise StoreDamaged(f"The store in {self.folder} is damaged: {damage}")
        self._checked_store = store_id


_StoreId = tuple[int, int] | None
"""Identifies a store among those that are in one place in turn; None where there is none."""


def _open_reader(folder: Path) -> tuple[_StoreId, Reader]:
    """A reader and the identity of its store; of an empty store where there is none yet."""
    store_id = identity_of(folder)
    if store_id is not None:
        with contextlib.suppress(NotFound):  # it is just being created
            return store_id, open_reader(folder)
    return None, empty_store()
