"""Runs this process as the agent of a store folder: until its runs end, or until it has caught up."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING

from stepscope import procfs
from stepscope.agent.agent import Agent
from stepscope.agent.ingest.ingest import Ingest
from stepscope.agent.process.election import AgentLock, agent_pid
from stepscope.agent.process.report import explain_error
from stepscope.agent.process.wake import wake
from stepscope.agent.run_settings import RunSettingsRegistry
from stepscope.config.sections import from_dict
from stepscope.errors import StoreError, StoreLocked
from stepscope.journal.folder import journals_of, list_folder, list_journals, parse
from stepscope.journal.layout import HEADER_BYTES
from stepscope.journal.private_settings import list_private
from stepscope.journal.reader import written_so_far
from stepscope.store.open import empty_store, has_store, open_reader, open_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepscope.config.sections import Settings
    from stepscope.store.base import Reader, Store

LOG_FORMAT = "%(asctime)s %(levelname)s %(message)s"
MAX_WAIT_S = 10.0
"""How long a reader waits for an agent that stores nothing."""
ELECTION_S = 2.0
MAX_LOCK_WAIT_S = 30.0
"""How long a new agent tries to get the lock: readers that poll a store may hold it repeatedly."""


def attend(folder: Path, settings: Settings, should_stop: Callable[[], bool] = lambda: False) -> None:
    """Runs as the agent of a folder until its last run has ended."""
    with AgentLock(folder) as lock:
        store = open_store(folder)
        agent = Agent(folder, store, settings, is_in_place=lambda: _is_in_place(lock, store))
        try:
            agent.run(should_stop)
        finally:
            agent.close()
            _close(store, lock)


def _is_in_place(lock: AgentLock, store: Store) -> bool:
    """Whether lock and store are still those of the folder; raises OSError where that is unknown.

    A folder that was deleted, moved or replaced has another agent: this one must touch nothing in it.
    """
    return lock.is_in_place() and store.is_in_place()


def _close(store: Store, lock: AgentLock) -> None:
    """Closes a store; leaves it open for good where another one is in its place by now."""
    with contextlib.suppress(OSError):
        if _is_in_place(lock, store):
            store.close()
            return
    store.leave_open()


def catch_up(folder: Path) -> None:
    """Brings what is in the journals now into the store: waits for the agent, or ingests itself.

    Where nothing may be written, or the agent does not answer, the reader sees what the store has; raises
    StoreError where there is no store.
    """
    listing = list_folder(folder)
    if not listing.journals and not listing.exit_notes and not any(list_private(folder)):
        return
    deadline = time.monotonic() + ELECTION_S
    while agent_pid(folder) is None:
        try:
            # Not as the agent: a monitor that starts meanwhile must not mistake this process for it.
            lock = AgentLock(folder, as_agent=False)
        except StoreLocked:
            # An agent that has not written its name yet, another reader, or an agent on another host.
            if time.monotonic() > deadline:
                break
            time.sleep(0.01)
            continue
        except OSError as error:
            if has_store(folder):
                return
            raise StoreError(
                f"Runs are waiting in {journals_of(folder)} and cannot be stored: {explain_error(error)}"
            ) from error
        with lock:
            _ingest_all(folder, lock)
        return
    _wait_for_agent(folder)


def _ingest_all(folder: Path, lock: AgentLock) -> None:
    store = open_store(folder)
    ingest = Ingest(folder, store, is_in_place=lambda: _is_in_place(lock, store))
    unread = _Unread(folder)
    rounds = 2  # the first reads who wrote a journal, the second checks whether that process is alive
    try:
        while rounds:
            # A process that goes on writing could be behind forever.
            if not ingest.tick() or not unread.is_being_stored(store):
                rounds -= 1
        RunSettingsRegistry(folder, store).delete_unneeded()
    finally:
        ingest.close()
        _close(store, lock)


def _wait_for_agent(folder: Path) -> None:
    """Waits until the agent has read each journal as far as it was written at the start of the wait."""
    unread = _Unread(folder)
    wake(folder)
    while unread.files:
        try:
            reader = open_reader(folder)
        except StoreError:  # not created yet
            reader = empty_store()
        with contextlib.closing(reader):
            if not unread.is_being_stored(reader):
                return
        time.sleep(0.01)


class _Unread:
    """The part of a folder's journals that is not stored yet, as far as they were written at one time."""

    def __init__(self, folder: Path) -> None:
        written = {path: written_so_far(path) for _, path in list_journals(folder)}
        self.files = {path: goal for path, goal in written.items() if goal.end > HEADER_BYTES}
        """The files, each with the length that is to be stored."""
        self._folder = folder
        self._stored: dict[Path, int] = {}
        self._deadline = time.monotonic() + MAX_WAIT_S

    def is_being_stored(self, reader: Reader) -> bool:
        """Whether there is an unread part, and the store grew by some of it in the last seconds."""
        offsets = reader.progress_of_all()
        set_aside = {self._folder / note.path for note in reader.set_aside()}
        self.files = {
            path: goal
            for path, goal in self.files.items()
            if path.exists()
            and set_aside.isdisjoint((path, path.parent))
            and (offsets.get(goal.file_id, 0) < goal.end or _is_orphan(path))
        }
        stored = {path: offsets.get(goal.file_id, 0) for path, goal in self.files.items()}
        if stored != self._stored:
            self._stored, self._deadline = stored, time.monotonic() + MAX_WAIT_S
        return bool(self.files) and time.monotonic() < self._deadline


def _is_orphan(path: Path) -> bool:
    """Whether the process of a journal has ended, so that its file is deleted once its end is stored."""
    name = parse(path)
    return name is not None and procfs.start_ticks(name.pid) is None


def log_to(file: IO[bytes]) -> None:
    """Sends the agent's log to a file, and not to the output of the training it runs in as a thread."""
    handler = logging.StreamHandler(io.TextIOWrapper(file, "utf-8", "backslashreplace", line_buffering=True))
    handler.setFormatter(logging.Formatter(LOG_FORMAT))
    log = logging.getLogger("stepscope.agent")
    log.handlers, log.propagate = [handler], False


def main() -> int:
    """Runs an agent whose folder and settings come as JSON on standard input."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format=LOG_FORMAT)
    arguments = json.load(sys.stdin)
    os.nice(5)
    # Sampler threads keep to their schedule only if long computations are interrupted for them.
    sys.setswitchinterval(0.002)
    stopped: list[int] = []
    # Exporters finish their files: a machine that shuts down sends SIGTERM before SIGKILL.
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    deadline = time.monotonic() + MAX_LOCK_WAIT_S
    while True:
        try:
            attend(Path(arguments["folder"]), from_dict(arguments["settings"]), lambda: bool(stopped))
        except StoreLocked:
            # Another agent holds the lock, and this one is not needed; or a reader that is done soon.
            if stopped or time.monotonic() > deadline:
                return 0
            time.sleep(0.05)
        else:
            return 0
