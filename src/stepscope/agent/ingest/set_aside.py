"""Tracks journals that cannot be read or stored: why, and when each is retried."""

from __future__ import annotations

import errno
import logging
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepscope.agent.process.report import explain_error
from stepscope.errors import JournalError, StoreError
from stepscope.journal.layout import clean
from stepscope.store.base import SetAside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from stepscope.store.base import Store

log = logging.getLogger("stepscope.agent")

FIRST_PAUSE_S = 1.0
MAX_PAUSE_S = 60.0


@dataclass
class _Problem:
    note: SetAside
    pause_s: float
    retry_at: float
    is_permanent: bool
    """Whether a retry is unlikely to succeed; the files after it do not wait for it."""
    message: str
    """What the training that writes it reports, where somebody has to act; empty elsewhere."""


class SetAsideJournals:
    """Journals that are set aside: they are retried after growing pauses, while other runs go on."""

    def __init__(
        self,
        folder: Path,
        store: Store,
        now: Callable[[], float] = time.monotonic,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._folder, self._store, self._now, self._now_ns = folder, store, now, now_ns
        self._problems: dict[Path, _Problem] = {}
        self._owners: dict[int, Path] = {}
        """The path of each file id; ids are random, so that only a copy has the id of another file."""
        self._stored: set[int] = set()
        self._saved = {note.path: note for note in store.set_aside()}
        self._damage_notes = dict(map(self._note_damage, store.damaged_copies()))

    def _note_damage(self, copy: Path) -> tuple[str, SetAside]:
        """A note on the copy of a damaged part of the store: it is listed for as long as it exists."""
        name = clean(os.path.relpath(copy, self._folder))
        reason = "the newest transactions of the store were damaged or cut off, and records in them are lost"
        advice = f"Restore the store from a copy, or delete {clean(copy)}."
        earlier = self._saved.get(name)
        since_ns = self._now_ns() if earlier is None else earlier.since_ns
        return name, SetAside(name, reason, advice, since_ns)

    def add(self, path: Path, error: Exception) -> None:
        """Sets a file, or a folder of files, aside until a pause is over."""
        problem = self._problems.get(path)
        pause_s = FIRST_PAUSE_S if problem is None else min(problem.pause_s * 2, MAX_PAUSE_S)
        name, (reason, advice) = clean(path.relative_to(self._folder)), explain(path, error)
        if problem is None:
            log.warning("Set aside: %s: %s. %s", name, reason, advice)
        earlier = problem.note if problem is not None else self._saved.get(name)
        since_ns = self._now_ns() if earlier is None else earlier.since_ns
        is_permanent = isinstance(error, JournalError | PermissionError) or pause_s >= MAX_PAUSE_S
        note = SetAside(name, reason, advice, since_ns)
        message = explain_error(error) if isinstance(error, JournalError | PermissionError) else ""
        self._problems[path] = _Problem(note, pause_s, self._now() + pause_s, is_permanent, message)

    def claim(self, file_id: int, path: Path) -> None:
        """Raises JournalError for a copy of a file that also exists, or that was stored and deleted."""
        owner = self._owners.setdefault(file_id, path)
        if owner == path:
            return
        if file_id in self._stored or owner.exists():
            raise JournalError(f"{path} is a copy of {owner.name}, whose records are stored once")
        self._owners[file_id] = path

    def mark_stored(self, file_id: int) -> None:
        """Notes that a file was stored and deleted: a copy of it must not be stored again."""
        self._stored.add(file_id)

    def is_waiting(self, path: Path) -> bool:
        """Whether a file is set aside and its pause is not over."""
        problem = self._problems.get(path)
        return problem is not None and self._now() < problem.retry_at

    def is_permanent(self, path: Path) -> bool:
        """Whether the files after this one need not wait for it."""
        problem = self._problems.get(path)
        return problem is None or problem.is_permanent

    def clear(self, path: Path) -> None:
        """Notes that a file can be read and stored."""
        if self._problems.pop(path, None) is not None:
            log.info("No longer set aside: %s", clean(path))

    @property
    def blocked_reason(self) -> str:
        """Why a journal is not stored, and what to do about it; empty when all are."""
        return next((problem.message for problem in self._problems.values() if problem.message), "")

    @property
    def has_retryable(self) -> bool:
        """Whether a retry may succeed soon, so that the agent should stay for it."""
        return any(not problem.is_permanent for problem in self._problems.values())

    def keep_only(self, present: Iterable[Path]) -> None:
        """Drops all but these: the others no longer exist, or can be listed again."""
        if self._problems:
            for path in set(self._problems).difference(present):
                del self._problems[path]

    def save(self) -> None:
        """Stores the list of what is set aside, where it has changed."""
        notes = {problem.note.path: problem.note for problem in self._problems.values()}
        notes |= self._damage_notes
        if notes != self._saved:
            with self._store.transaction():
                self._store.put_set_aside(notes.values())
            self._saved = notes


def explain(path: Path, error: Exception) -> tuple[str, str]:
    """Returns what is wrong with a file, and what a person can do about it."""
    if isinstance(error, JournalError):
        reason = clean(error).removeprefix(f"{clean(path)} ").rstrip(".")
        advice = "" if "pip install" in reason else f"Nothing is lost. Move it out of {clean(path.parent)}."
        return reason, advice
    if isinstance(error, PermissionError):
        return (
            f"no permission to read or delete it (owner: uid {_owner(path)})",
            "Its owner can read it in with: stepscope runs. Or allow others to read it: chmod -R a+rX",
        )
    if isinstance(error, StoreError):
        return f"the store refused it: {clean(error).rstrip('.')}", "See: stepscope doctor"
    if isinstance(error, OSError):
        code = errno.errorcode.get(error.errno or 0, "")
        return f"it cannot be read: {error.strerror} ({code})", "It is retried. Check the disk."
    return f"{type(error).__name__}: {clean(error)}", "It is retried. Please report this."


def _owner(path: Path) -> int | str:
    try:
        return path.lstat().st_uid
    except OSError:
        return "unknown"
