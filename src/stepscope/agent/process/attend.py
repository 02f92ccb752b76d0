"""Runs this process as the agent of a store folder: until its runs end, or until it has caught up."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import signal
import sqlite3
import sys
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING

from stepscope import procfs
from stepscope.agent.agent import Agent
from stepscope.agent.ingest.ingest import Ingest
from stepscope.agent.process.election import AgentLock, OpenedStore, agent_pid
from stepscope.agent.process.report import explain_error
from stepscope.agent.process.wake import wake
from stepscope.agent.run_settings import RunSettingsRegistry
from stepscope.config.plain import from_dict
from stepscope.errors import StoreError, StoreLocked
from stepscope.journal.folder import journals_of, list_folder, list_journals, parse
from stepscope.journal.layout import HEADER_BYTES
from stepscope.journal.private_settings import list_private
from stepscope.journal.reader import written_so_far
from stepscope.store.place import database
from stepscope.store.sqlite import SqliteReader, SqliteStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepscope.config.sections import Settings

LOG_FORMAT = "%(asctime)s %(levelname)s %(message)s"
CATCH_UP_S = 10.0
ELECTION_S = 2.0
MAX_LOCK_WAIT_S = 30.0
"""How long a new agent tries to get the lock: readers that poll a store may hold it repeatedly."""


def attend(folder: Path, settings: Settings, should_stop: Callable[[], bool] = lambda: False) -> None:
    """Runs as the agent of a folder until its last run has ended."""
    with AgentLock(folder) as lock:
        store = SqliteStore(database(folder))
        opened = OpenedStore(lock, store.path)
        agent = Agent(folder, store, settings, is_in_place=opened.is_in_place)
        try:
            agent.run(should_stop)
        finally:
            agent.close()
            _close(store, opened)


def _close(store: SqliteStore, opened: OpenedStore) -> None:
    """Closes a store; leaves it open for good where another one is at its path by now.

    When SQLite closes a database it deletes the write-ahead log by its path: that would be the log of the
    other database, with its newest transactions.
    """
    with contextlib.suppress(OSError):
        if opened.is_in_place():
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
            if database(folder).exists():
                return
            raise StoreError(
                f"Runs are waiting in {journals_of(folder)} and cannot be stored: {explain_error(error)}"
            ) from error
        with lock:
            _ingest_all(folder, lock)
        return
    _wait_for_agent(folder)


def _ingest_all(folder: Path, lock: AgentLock) -> None:
    store = SqliteStore(database(folder))
    opened = OpenedStore(lock, store.path)
    ingest = Ingest(folder, store, is_in_place=opened.is_in_place)
    deadline = time.monotonic() + CATCH_UP_S
    rounds = 2  # the first reads who wrote a journal, the second checks whether that process is alive
    try:
        while rounds and time.monotonic() < deadline:
            if not ingest.tick():
                rounds -= 1
        RunSettingsRegistry(folder, store).delete_unneeded()
    except sqlite3.Error as error:
        raise StoreError(f"The store in {folder} cannot take in the journals: {error}.") from error
    finally:
        ingest.close()
        _close(store, opened)


def _wait_for_agent(folder: Path) -> None:
    """Waits until the agent has read each journal as far as it was written at the start of the wait."""
    written = {path: written_so_far(path) for _, path in list_journals(folder)}
    goals = {path: goal for path, goal in written.items() if goal.end > HEADER_BYTES}
    deadline = time.monotonic() + CATCH_UP_S
    wake(folder)
    while goals and time.monotonic() < deadline:
        progress, set_aside = _progress(folder)
        goals = {
            path: goal
            for path, goal in goals.items()
            if path.exists()
            and set_aside.isdisjoint((path, path.parent))
            and (progress.get(goal.file_id, 0) < goal.end or _is_orphan(path))
        }
        if goals:
            time.sleep(0.01)


def _progress(folder: Path) -> tuple[dict[int, int], set[Path]]:
    """How far each journal file is stored, and which files are set aside and need no wait."""
    try:
        reader = SqliteReader(database(folder))
    except StoreError:  # not created yet
        return {}, set()
    try:
        return reader.progress_of_all(), {folder / note.path for note in reader.set_aside()}
    finally:
        reader.close()


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
