"""Checks of the store folder, its file system, database, journals and agent."""

from __future__ import annotations

import os
import platform
import shutil
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
from stepscope.reading import Run
from stepscope.schema.run import LIVE
from stepscope.store.open import check_store, open_reader
from stepscope.store.place import database
from stepscope.views.formatting import size
from stepscope.views.run_exporters import exporters_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from stepscope.config.sections import Settings
    from stepscope.store.base import SetAside

Outcome = Literal["ok", "note", "problem"]

COMFORTABLE_BYTES = 1 << 30
START_TIMEOUT_S = 30.0
ACCESS_REMEDY = (
    "Ask its owner for read and write access to all of the folder, or name another one with STEPSCOPE_DIR."
)
_DATABASE_REMEDIES = {
    "old_library": "Use a Python built with a newer SQLite, such as the one conda installs.",
    "damaged": "Restore the file from a copy, or move it away to begin a new store.",
    "no_access": ACCESS_REMEDY,
}


@dataclass(frozen=True)
class Check:
    """What was checked, the result, and what to do about it."""

    name: str
    outcome: Outcome
    found: str
    remedy: str = ""
    """Empty when there is nothing to do. A problem stops recording; a note does not."""


def check_python() -> Check:
    """Which Python this is, and whether the operating system is supported."""
    python = f"{platform.python_version()} at {sys.executable}"
    if sys.platform != "linux":
        return Check(
            "python",
            "note",
            f"{python}, on {platform.system()}",
            "stepscope is tested on Linux; figures from /proc are missing elsewhere.",
        )
    return Check("python", "ok", python)


def check_folder(folder: Path) -> Check:
    """Whether the store folder exists, or can be created, and is writable."""
    if filesystem.is_closed(folder):
        return Check("store", "problem", f"This user may not enter {folder}.", ACCESS_REMEDY)
    place = nearest_existing(folder)
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        return Check(
            "store",
            "problem",
            f"{place} is not writable: {error.strerror}.",
            "Give this user write access, or name another folder with STEPSCOPE_DIR.",
        )
    if place != folder:
        return Check("store", "ok", f"{folder} will be created by the first run")
    inaccessible = [path for path in (database(folder), journals_of(folder)) if _is_inaccessible(path)]
    if inaccessible:
        return Check(
            "store",
            "problem",
            f"{inaccessible[0]} may not be read and written by this user.",
            ACCESS_REMEDY,
        )
    return Check("store", "ok", f"{folder} exists and is writable")


def check_file_system(folder: Path, mounts: Path = filesystem.MOUNTS) -> Check:
    """What kind of file system the folder is on, and where that puts the database."""
    kind = filesystem.kind_of(folder, mounts)
    if not filesystem.is_network(kind):
        return Check("file system", "ok", f"{kind or 'of unknown kind'}, local")
    return Check(
        "file system",
        "note",
        f"{kind}, shared over the network; the database is {database(folder, mounts)}",
        "Other hosts read this store through their own database. To have one database, name a folder on a "
        "local disk with STEPSCOPE_DIR.",
    )


def check_space(folder: Path, settings: Settings) -> Check:
    """Whether the disk has enough free space."""
    free = shutil.disk_usage(nearest_existing(folder)).free
    free_text = f"{size(free)} free"
    remedy = "Free some space, or name a folder on another disk with STEPSCOPE_DIR."
    if free < 4 * settings.recorder.segment_bytes:
        return Check("space", "problem", free_text, remedy)
    if free < COMFORTABLE_BYTES:
        return Check("space", "note", free_text, remedy)
    return Check("space", "ok", free_text)


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
    """How much of the journals is not yet in the database."""
    unread = sum(_unread(folder))
    text = f"{size(unread)} of journals not yet in the database" if unread else "no unread journals"
    if unread and agent_pid(folder) is None:
        return Check("unread", "note", text, "Read them into the database with: stepscope runs")
    return Check("unread", "ok", text)


def _unread(folder: Path) -> Iterator[int]:
    try:
        reader = open_reader(folder)
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
    reasons = {
        folder / journal.path: (journal.reason, journal.advice) for journal in _stored_set_aside(folder)
    }
    if agent_pid(folder) is None:  # newer journals have not been noted
        reasons |= _unreadable(folder)
    for path, (reason, advice) in reasons.items():
        yield Check("journal", "note", f"{path} is set aside: {reason}.", advice or "It is tried again.")


def _stored_set_aside(folder: Path) -> list[SetAside]:
    try:
        reader = open_reader(folder)
    except StoreError:
        return []
    try:
        return reader.set_aside()
    except StoreError:  # the check of the database reports it
        return []
    finally:
        reader.close()


def _unreadable(folder: Path) -> dict[Path, tuple[str, str]]:
    """The journals that cannot be opened, and why."""
    reasons: dict[Path, tuple[str, str]] = {}

    def note(path: Path, error: Exception) -> None:
        reasons[path] = explain(path, error)

    for _, path in list_folder(folder, note).journals:
        try:
            JournalReader(path).close()
        except FileNotFoundError:
            continue
        except (OSError, JournalError) as error:
            note(path, error)
    return reasons


def check_agent(folder: Path, settings: Settings) -> Check:
    """Whether an agent serves the folder, or one can be started."""
    pid, report = agent_pid(folder), read_report(folder)
    if report is not None and report.trouble and pid in (None, report.pid):
        failed = f"process {report.pid} could not work: {report.trouble}"
        return Check("agent", "problem", failed, f"Its log is {folder / LOG_NAME}.")
    if pid is not None:
        older = older_agent(folder)
        running = f"process {pid} is the agent of this folder"
        return Check("agent", "note", running, older) if older else Check("agent", "ok", running)
    if settings.agent.mode != "process":
        return Check("agent", "ok", f"none now; agent.mode is {settings.agent.mode}")
    try:
        subprocess.run([sys.executable, "-c", ""], check=True, timeout=START_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError) as error:
        return Check(
            "agent",
            "note",
            f"no process can be started here: {error}",
            "Set STEPSCOPE_AGENT__MODE=thread to run the agent inside the training process.",
        )
    return Check("agent", "ok", "none now; the first run starts one")


def check_exporters(folder: Path) -> Iterator[Check]:
    """How the exporters of live runs are doing."""
    try:
        reader = open_reader(folder)
    except StoreError:  # the check of the database reports it
        return
    try:
        for info in reader.runs():
            if info.status in LIVE:
                for exporter in exporters_of(Run(info, reader)):
                    text = f"{exporter.name} of the run {info.name}: {exporter.text}"
                    if exporter.is_failing:
                        yield Check("exporter", "note", text, "Training goes on, and it is tried again.")
                    else:
                        yield Check("exporter", "ok", text)
    except StoreError:
        return
    finally:
        reader.close()


def check_sqlite(folder: Path) -> Check:
    """Whether the SQLite library is new enough, and the store's file can be read."""
    health = check_store(folder)
    if health.problem is not None:
        return Check("database", "problem", health.summary, _DATABASE_REMEDIES[health.problem])
    size_text = "" if health.bytes_used is None else f", {size(health.bytes_used)}"
    return Check("database", "ok", f"{health.summary}{size_text}")


def _is_inaccessible(path: Path) -> bool:
    """Whether a path exists that this user may not use."""
    needed = os.R_OK | os.W_OK | (os.X_OK if path.is_dir() else 0)
    return path.exists() and not os.access(path, needed)


def nearest_existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists."""
    return next(place for place in (folder, *folder.absolute().parents) if place.exists())
