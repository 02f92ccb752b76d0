"""Turns journal records into store rows, once and only once."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import time
from typing import TYPE_CHECKING

from stepscope import procfs
from stepscope.agent.feeds import Feeds
from stepscope.agent.follower import Follower
from stepscope.agent.liveness import Pulse
from stepscope.agent.report import trouble_of
from stepscope.errors import JournalError, StoreError
from stepscope.journal.folder import JournalName, journals_of, list_journals

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from stepscope.schema.run import Process
    from stepscope.store.base import Store

log = logging.getLogger("stepscope.agent")

Stem = tuple[str, str, int, int]


class _Indigestible(Exception):
    def __init__(self, follower: Follower) -> None:
        self.follower = follower


class Ingest:
    """Follows all journals of a store folder. Rows and the offset they came from are kept together."""

    def __init__(  # noqa: PLR0913, PLR0917 - two clocks and three parties, each given by somebody else
        self,
        folder: Path,
        store: Store,
        stall_after_s: float = 60.0,
        now: Callable[[], float] = time.monotonic,
        is_alive: Callable[[procfs.ProcessMark], bool | None] = procfs.is_alive,
        feeds: Feeds | None = None,
        is_in_place: Callable[[], bool] = lambda: True,
    ) -> None:
        self._folder, self._store, self._is_in_place = folder, store, is_in_place
        self._feeds = feeds or Feeds({})
        self._stall_after_s, self._now, self._is_alive = stall_after_s, now, is_alive
        self._followers: dict[Stem, Follower] = {}
        self._unreadable: set[Path] = set()
        self.left_alone = ""
        """Why a journal is not taken in, and what to do about it; empty when all are."""
        self._forgotten: list[int] = []

    def tick(self) -> bool:
        """Takes in what has come; True when more is waiting already."""
        try:
            return self._tick_or_fail()
        except _Indigestible as error:
            log.exception("Left alone: the journal of process %s", error.follower.process.pid)
            self._unreadable.update(error.follower.files)
            self._begin_again()
            return True
        except BaseException:
            self._begin_again()
            raise

    @property
    def live(self) -> bool:
        """Whether any process may still write."""
        return bool(self._followers)

    def processes_here(self) -> list[Process]:
        """The processes of this host that may still write and that the store knows."""
        here = [follower.process for follower in self._followers.values() if follower.is_here]
        return [process for process in here if process.started_ns]

    def sync(self) -> None:
        """Asks the disk to keep all journals."""
        for follower in self._followers.values():
            follower.sync()

    def close(self) -> None:
        """Lets go of all files."""
        for follower in self._followers.values():
            follower.close()

    def _tick_or_fail(self) -> bool:
        files = self._files()
        met = [stem for stem in files if stem not in self._followers]
        for stem in met:
            follower = self._followers[stem] = self._follow(JournalName(*stem))
            if follower.process.started_ns:
                # Somebody else has taken in what it wrote so far.
                self._feeds.note_process(follower.process)
        telling = [
            follower
            for stem, follower in list(self._followers.items())
            if self._gather_readable(follower, files.get(stem, []))
        ]
        if self._followers and not self._is_in_place():
            # What was gathered may be of another folder at the same path, with an agent of its own.
            raise StoreError(f"the store in {self._folder} was deleted, moved or replaced")
        if telling:
            with self._store.transaction():
                self._store.forget_progress(self._forgotten)
                for follower in telling:
                    self._tell(follower)
            self._forgotten = []
        if telling or met:
            self._feeds.pass_on()
            self._feeds.settle()
        for follower in list(self._followers.values()):
            self._let_go(follower)
        more = not all(follower.caught_up for follower in self._followers.values())
        self._drop_ended()
        return more

    def _begin_again(self) -> None:
        """Forgets what the followers remember, which may be ahead of the store, for its offsets."""
        self._feeds.forget()
        for follower in self._followers.values():
            follower.close()
        self._followers.clear()

    def _tell(self, follower: Follower) -> None:
        try:
            follower.tell()
        except (OSError, sqlite3.Error, StoreError, MemoryError):
            raise
        except Exception as error:
            # One journal that cannot be understood must not keep all others from the store.
            raise _Indigestible(follower) from error

    def _files(self) -> dict[Stem, list[Path]]:
        found: dict[Stem, list[Path]] = {}
        for name, path in list_journals(self._folder):
            if path not in self._unreadable:
                found.setdefault(name.stem, []).append(path)
        return found

    def _gather_readable(self, follower: Follower, files: list[Path]) -> bool:
        try:
            return follower.gather(files)
        except (JournalError, PermissionError) as error:
            self._leave_alone(follower, files, error)
            return False

    def _let_go(self, follower: Follower) -> None:
        try:
            self._forgotten += follower.let_go()
        except PermissionError as error:
            # The store has its records, and knows that it has: whoever may delete the files does so.
            self._leave_alone(follower, follower.files, error)

    def _leave_alone(self, follower: Follower, files: list[Path], error: Exception) -> None:
        """Leaves a journal to another agent, and does not stay for it: that one waits for this one's end."""
        self.left_alone = trouble_of(error)
        log.warning("Left alone: %s", self.left_alone)
        self._unreadable.update(files)
        follower.close()
        self._followers = {stem: one for stem, one in self._followers.items() if one is not follower}

    def _follow(self, name: JournalName) -> Follower:
        folder = journals_of(self._folder) / name.run_id
        return Follower(name, folder, self._store, self._pulse, self._feeds)

    def _pulse(self, marks: procfs.ProcessMark) -> Pulse:
        return Pulse(marks, self._stall_after_s, self._now, self._is_alive)

    def _drop_ended(self) -> None:
        for stem, follower in list(self._followers.items()):
            if follower.ended:
                follower.close()
                del self._followers[stem]
                with contextlib.suppress(OSError):  # other processes of the run may have files there
                    (journals_of(self._folder) / stem[0]).rmdir()
