"""Checks of the place runs are recorded in, each a question with one answer."""

from __future__ import annotations

import os
import platform
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from stepscope import filesystem
from stepscope.agent.ingest.set_aside import explain
from stepscope.agent.process.election import agent_pid
from stepscope.agent.process.report import read_report
from stepscope.agent.process.start import LOG_NAME, older_agent
from stepscope.errors import JournalError, StoreError
from stepscope.journal.folder import journals_of, list_folder, list_journals
from stepscope.journal.reader import JournalReader, written_so_far
from stepscope.store.place import database
from stepscope.store.sqlite import SqliteReader
from stepscope.views.formatting import size

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from stepscope.config.sections import Settings
    from stepscope.store.base import SetAside

Outcome = Literal["ok", "note", "problem"]

OLDEST_SQLITE = (3, 35, 0)
"""The first whose ON CONFLICT needs no list of columns."""

COMFORTABLE_BYTES = 1 << 30
START_WITHIN_S = 30.0
DATABASE_REMEDY = "Restore the file from a copy, or move it away to begin a new store."
CLOSED_REMEDY = (
    "Ask its owner for read and write access to all of the folder, or name another one with STEPSCOPE_DIR."
)
MAX_VERIFIED_BYTES = 256 << 20
"""A larger database is not read from end to end, which would take minutes."""


@dataclass(frozen=True)
class Check:
    """What was looked at, how it stands, and what to do about it."""

    name: str
    outcome: Outcome
    found: str
    remedy: str = ""
    """Empty when there is nothing to do. A problem stops recording; a note does not."""


def check_python() -> Check:
    """Which Python this is, and whether the system is one that is supported."""
    found = f"{platform.python_version()} at {sys.executable}"
    if sys.platform != "linux":
        return Check(
            "python",
            "note",
            f"{found}, on {platform.system()}",
            "stepscope is tested on Linux; what it learns from /proc is missing elsewhere.",
        )
    return Check("python", "ok", found)


def check_folder(folder: Path) -> Check:
    """Whether the store folder is there, or can be made, and takes files."""
    place = existing(folder)
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        return Check(
            "store",
            "problem",
            f"{place} takes no files: {error.strerror}.",
            "Give this user write access, or name another folder with STEPSCOPE_DIR.",
        )
    if place != folder:
        return Check("store", "ok", f"{folder} will be made by the first run")
    closed = [one for one in (database(folder), journals_of(folder)) if _is_closed(one)]
    if closed:
        return Check(
            "store",
            "problem",
            f"{closed[0]} may not be read and written by this user.",
            CLOSED_REMEDY,
        )
    return Check("store", "ok", f"{folder} is there and takes files")


def check_file_system(folder: Path, mounts: Path = filesystem.MOUNTS) -> Check:
    """What kind of file system the folder is on, and where that puts the database."""
    kind = filesystem.kind_of(folder, mounts)
    if not filesystem.is_network(kind):
        return Check("file system", "ok", f"{kind or 'of unknown kind'}, local")
    return Check(
        "file system",
        "note",
        f"{kind}, shared over the network; the database is {database(folder, mounts)}",
        "Other hosts read this store through their own database. To have one place, name a folder on a "
        "local disk with STEPSCOPE_DIR.",
    )


def check_space(folder: Path, settings: Settings) -> Check:
    """Whether the disk has room."""
    free = shutil.disk_usage(existing(folder)).free
    found = f"{size(free)} free"
    remedy = "Free some space, or name a folder on another disk with STEPSCOPE_DIR."
    if free < 4 * settings.recorder.segment_bytes:
        return Check("space", "problem", found, remedy)
    if free < COMFORTABLE_BYTES:
        return Check("space", "note", found, remedy)
    return Check("space", "ok", found)


def check_journal(folder: Path, settings: Settings, mounts: Path = filesystem.MOUNTS) -> Check:
    """Whether the journal is memory-mapped or written with write()."""
    mapping = settings.recorder.mapping
    if mapping == "never":
        return Check("journal", "ok", "written with write(), as recorder.mapping asks")
    kind = filesystem.kind_of(folder, mounts)
    if mapping == "always" or filesystem.keeps_reserved_space(kind):
        return Check("journal", "ok", "memory-mapped")
    return Check(
        "journal",
        "note",
        f"written with write(): on {kind} a mapped file may fail when the disk is full",
        "For memory-mapped journals name a folder on a local ext4 or xfs disk with STEPSCOPE_DIR.",
    )


def check_unread(folder: Path) -> Check:
    """How much of the journals no agent has taken in yet."""
    waiting = sum(_unread(folder))
    if waiting and agent_pid(folder) is None:
        return Check(
            "unread", "note", f"{size(waiting)} wait in journals", "Take them in with: stepscope runs"
        )
    return Check("unread", "ok", f"{size(waiting)} wait in journals" if waiting else "nothing waits")


def _unread(folder: Path) -> Iterator[int]:
    try:
        reader = SqliteReader(database(folder))
    except StoreError:
        progress = {}
    else:
        progress = reader.progress_of_all()
        reader.close()
    for _, path in list_journals(folder):
        written = written_so_far(path)
        yield max(written.end - progress.get(written.file_id, 0), 0)


def check_set_aside(folder: Path) -> Iterator[Check]:
    """Which journals could not be read or stored, why, and what to do about each."""
    found = {folder / one.path: (one.reason, one.advice) for one in _noted_as_set_aside(folder)}
    if agent_pid(folder) is None:  # nobody has noted what has come since
        found |= _unreadable(folder)
    for path, (reason, advice) in found.items():
        yield Check("journal", "note", f"{path} is set aside: {reason}.", advice or "It is tried again.")


def _noted_as_set_aside(folder: Path) -> list[SetAside]:
    try:
        reader = SqliteReader(database(folder))
    except StoreError:
        return []
    try:
        return reader.set_aside()
    except StoreError:  # the check of the database says so
        return []
    finally:
        reader.close()


def _unreadable(folder: Path) -> dict[Path, tuple[str, str]]:
    """The journals that cannot even be opened, and why."""
    found: dict[Path, tuple[str, str]] = {}

    def note(path: Path, error: Exception) -> None:
        found[path] = explain(path, error)

    for _, path in list_folder(folder, note).journals:
        try:
            JournalReader(path).close()
        except FileNotFoundError:
            continue
        except (OSError, JournalError) as error:
            note(path, error)
    return found


def check_agent(folder: Path, settings: Settings) -> Check:
    """Whether an agent attends to the folder, or one can be started."""
    pid, report = agent_pid(folder), read_report(folder)
    if report is not None and report.trouble and pid in (None, report.pid):
        found = f"process {report.pid} could not work: {report.trouble}"
        return Check("agent", "problem", found, f"Its log is {folder / LOG_NAME}.")
    if pid is not None:
        older = older_agent(folder)
        found = f"process {pid} attends to this folder"
        return Check("agent", "note", found, older) if older else Check("agent", "ok", found)
    if settings.agent.mode != "process":
        return Check("agent", "ok", f"none now; agent.mode is {settings.agent.mode}")
    try:
        subprocess.run([sys.executable, "-c", ""], check=True, timeout=START_WITHIN_S)
    except (OSError, subprocess.SubprocessError) as error:
        return Check(
            "agent",
            "note",
            f"no process can be started here: {error}",
            "Set STEPSCOPE_AGENT__MODE=thread to have the agent inside the training process.",
        )
    return Check("agent", "ok", "none now; the first run starts one")


def check_sqlite(folder: Path) -> Check:
    """Whether the SQLite library is new enough, and the store's file one this stepscope reads."""
    library = f"SQLite {sqlite3.sqlite_version}"
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        needed = ".".join(map(str, OLDEST_SQLITE))
        return Check(
            "database",
            "problem",
            f"{library} is too old; {needed} or newer is needed.",
            "Use a Python built with a newer SQLite, such as the one conda installs.",
        )
    path = database(folder)
    if not path.exists():
        return Check("database", "ok", f"{library}; no store file yet")
    try:
        reader = SqliteReader(path)
    except StoreError as error:
        may_read = os.access(path, os.R_OK)
        return Check("database", "problem", str(error), DATABASE_REMEDY if may_read else CLOSED_REMEDY)
    try:
        taken = reader.bytes_used()
        if taken <= MAX_VERIFIED_BYTES:
            reader.verify()
    except StoreError as error:
        return Check("database", "problem", str(error), DATABASE_REMEDY)
    finally:
        reader.close()
    return Check("database", "ok", f"{library}; {path}, version {_version(path)}, {size(taken)}")


def _version(path: Path) -> int:
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    try:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])
    finally:
        connection.close()


def _is_closed(path: Path) -> bool:
    """Whether something is there that this user may not use."""
    needed = os.R_OK | os.W_OK | (os.X_OK if path.is_dir() else 0)
    return path.exists() and not os.access(path, needed)


def existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists."""
    return next(place for place in (folder, *folder.absolute().parents) if place.exists())
