"""Remembers journals that cannot be read or stored, why, and when each is tried again."""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepscope.agent.process.report import trouble_of
from stepscope.errors import JournalError
from stepscope.journal.layout import clean
from stepscope.store.base import SetAside
from stepscope.store.connecting import DAMAGED_SUFFIX
from stepscope.store.place import database

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from stepscope.store.base import Store

log = logging.getLogger("stepscope.agent")

FIRST_PAUSE_S = 1.0
MAX_PAUSE_S = 60.0


@dataclass
class _Trouble:
    note: SetAside
    pause_s: float
    retry_at: float
    is_lasting: bool
    """Whether the next look will hardly find it any better; what comes after it does not wait for it."""
    told: str
    """The same for the training that writes it, where somebody has to act; empty elsewhere."""


class TroubledJournals:
    """Journals that were set aside: other runs go on, these are tried again after growing pauses."""

    def __init__(
        self,
        folder: Path,
        store: Store,
        now: Callable[[], float] = time.monotonic,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._folder, self._store, self._now, self._now_ns = folder, store, now, now_ns
        self._troubles: dict[Path, _Trouble] = {}
        self._owners: dict[int, Path] = {}
        """Which file has an id; ids are random, and only a copy has that of another."""
        self._stored: set[int] = set()
        self._noted = {note.path: note for note in store.set_aside()}
        self._damaged_log = self._find_damaged_log()

    def _find_damaged_log(self) -> dict[str, SetAside]:
        """The copy of a damaged write-ahead log: it is named for as long as it is there."""
        copy = database(self._folder).with_name(f"{database(self._folder).name}-wal{DAMAGED_SUFFIX}")
        if not copy.exists():
            return {}
        place = clean(os.path.relpath(copy, self._folder))
        reason = "the newest transactions of the store were damaged or cut off, and records in them are lost"
        advice = f"Restore the store from a copy, or delete {clean(copy)}."
        earlier = self._noted.get(place)
        since_ns = self._now_ns() if earlier is None else earlier.since_ns
        return {place: SetAside(place, reason, advice, since_ns)}

    def add(self, path: Path, error: Exception) -> None:
        """Sets a file, or a folder of files, aside until a pause is over."""
        known = self._troubles.get(path)
        pause_s = FIRST_PAUSE_S if known is None else min(known.pause_s * 2, MAX_PAUSE_S)
        place, (reason, advice) = clean(path.relative_to(self._folder)), explain(path, error)
        if known is None:
            log.warning("Set aside: %s: %s. %s", place, reason, advice)
        earlier = known.note if known is not None else self._noted.get(place)
        since_ns = self._now_ns() if earlier is None else earlier.since_ns
        is_lasting = isinstance(error, JournalError | PermissionError) or pause_s >= MAX_PAUSE_S
        note = SetAside(place, reason, advice, since_ns)
        told = trouble_of(error) if isinstance(error, JournalError | PermissionError) else ""
        self._troubles[path] = _Trouble(note, pause_s, self._now() + pause_s, is_lasting, told)

    def claim(self, file_id: int, path: Path) -> None:
        """Raises JournalError for a copy of a file that is there too, or that was stored and deleted."""
        owner = self._owners.setdefault(file_id, path)
        if owner == path:
            return
        if file_id in self._stored or owner.exists():
            raise JournalError(f"{path} is a copy of {owner.name}, whose records are stored once")
        self._owners[file_id] = path

    def release(self, file_id: int) -> None:
        """Notes that a file was stored and deleted: a copy of it must not be stored again."""
        self._stored.add(file_id)

    def rests(self, path: Path) -> bool:
        """Whether a file is not to be tried yet."""
        known = self._troubles.get(path)
        return known is not None and self._now() < known.retry_at

    def is_lasting(self, path: Path) -> bool:
        """Whether the files after this one need not wait for it."""
        known = self._troubles.get(path)
        return known is None or known.is_lasting

    def clear(self, path: Path) -> None:
        """Notes that a file can be read and stored."""
        if self._troubles.pop(path, None) is not None:
            log.info("No longer set aside: %s", clean(path))

    @property
    def left_alone(self) -> str:
        """Why a journal is not taken in, and what to do about it; empty when all are."""
        return next((one.told for one in self._troubles.values() if one.told), "")

    @property
    def is_hopeful(self) -> bool:
        """Whether something may be readable in a moment, so that it is worth staying to try it again."""
        return any(not one.is_lasting for one in self._troubles.values())

    def keep_only(self, present: Iterable[Path]) -> None:
        """Drops all but these: they are no longer there, or can be listed again."""
        if self._troubles:
            for path in set(self._troubles).difference(present):
                del self._troubles[path]

    def note(self) -> None:
        """Has the store name what is set aside now, where that has changed."""
        notes = {one.note.path: one.note for one in self._troubles.values()}
        notes |= self._damaged_log
        if notes != self._noted:
            with self._store.transaction():
                self._store.put_set_aside(notes.values())
            self._noted = notes


def explain(path: Path, error: Exception) -> tuple[str, str]:
    """What is wrong, and what a person can do about it."""
    if isinstance(error, JournalError):
        reason = clean(error).removeprefix(f"{clean(path)} ").rstrip(".")
        advice = "" if "pip install" in reason else f"Nothing is lost. Move it out of {clean(path.parent)}."
        return reason, advice
    if isinstance(error, PermissionError):
        return (
            f"no permission to read or delete it (owner: uid {_owner(path)})",
            "Its owner can read it in with: stepscope runs. Or allow others to read it: chmod -R a+rX",
        )
    if isinstance(error, sqlite3.Error):
        return f"the database refused it: {error}", "See: stepscope doctor"
    if isinstance(error, OSError):
        code = errno.errorcode.get(error.errno or 0, "")
        return f"it cannot be read: {error.strerror} ({code})", "It is tried again. Check the disk."
    return f"{type(error).__name__}: {clean(error)}", "It is tried again. Please report this."


def _owner(path: Path) -> int | str:
    try:
        return path.lstat().st_uid
    except OSError:
        return "unknown"
