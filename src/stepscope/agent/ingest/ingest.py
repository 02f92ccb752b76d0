"""Turns journal records into store rows, once and only once."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import time
from typing import TYPE_CHECKING

from stepscope.agent.ingest.feeds import Feeds
from stepscope.agent.ingest.follower import Follower
from stepscope.agent.ingest.known_processes import mark_of
from stepscope.agent.ingest.troubled import TroubledJournals
from stepscope.agent.liveness import Pulse
from stepscope.errors import StoreError
from stepscope.journal.folder import JournalName, Listing, journals_of, list_folder
from stepscope.journal.folder_cache import FolderCache

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from stepscope import procfs
    from stepscope.schema.run import Process
    from stepscope.store.base import Store

log = logging.getLogger("stepscope.agent")

Stem = tuple[str, str, int, int]

STRANGER_S = 10.0
"""So long a journal may be without a record that can be read: its process writes one at once."""


class Ingest:
    """Follows all journals of a store folder. Rows and the offset they came from are kept together."""

    def __init__(  # noqa: PLR0913, PLR0917 - two clocks and three parties, each given by somebody else
        self,
        folder: Path,
        store: Store,
        stall_after_s: float = 60.0,
        now: Callable[[], float] = time.monotonic,
        is_alive: Callable[[procfs.ProcessMark], bool | None] | None = None,
        feeds: Feeds | None = None,
        is_in_place: Callable[[], bool] = lambda: True,
    ) -> None:
        """`stall_after_s` holds for runs whose own settings say nothing else."""
        self._folder, self._store, self._is_in_place = folder, store, is_in_place
        self._folders = FolderCache()
        self._entries: dict[str, list[str]] = {}
        """What each folder of journals held when last looked at."""
        self._listing = Listing([], [])
        self._feeds = feeds or Feeds()
        self._stall_after_s, self._now, self._is_alive = stall_after_s, now, is_alive
        self._followers: dict[Stem, Follower] = {}
        self._met_at: dict[Stem, float] = {}
        self._troubled = TroubledJournals(folder, store, now)
        self._failed: list[Follower] = []
        self._forgotten: list[int] = []
        self._silent: set[Stem] = set()
        """Processes without a journal that were looked at, and of which nothing remains to be told."""

    def tick(self) -> bool:
        """Takes in what has come; True when more is waiting already."""
        try:
            return self._tick_or_fail()
        except BaseException:
            self._begin_again()
            raise

    @property
    def live(self) -> bool:
        """Whether any process may still write; one that wrote nothing readable for a while does not count."""
        now = self._now()
        return self._troubled.is_hopeful or any(
            not follower.is_stranger or now - self._met_at[stem] < STRANGER_S
            for stem, follower in self._followers.items()
        )

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
        met = self._meet(files)
        telling = [
            follower
            for stem, follower in list(self._followers.items())
            if self._gather(follower, files.get(stem, []))
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
        self._drop_failed()
        if telling or met:
            self._feeds.pass_on()
            self._feeds.settle()
        for follower in self._followers.values():
            self._forgotten += follower.let_go()
        more = not all(follower.caught_up for follower in self._followers.values())
        self._drop_ended()
        self._troubled.note()
        return more

    @property
    def left_alone(self) -> str:
        """Why a journal is not taken in, and what to do about it; empty when all are."""
        return self._troubled.left_alone

    def _meet(self, files: dict[Stem, list[Path]]) -> bool:
        """Begins to follow journals that were not there before; True when there were any."""
        met = False
        for stem, paths in files.items():
            if stem in self._followers or (paths and all(map(self._troubled.rests, paths))):
                continue
            try:
                follower = self._follow(JournalName(*stem))
            except Exception as error:  # noqa: BLE001 - one journal must not keep all others from the store
                _raise_if_store_rests(error)
                self._set_aside(paths, error)
                continue
            if not paths and not follower.has_an_end_to_tell:
                follower.close()
                self._silent.add(stem)
                continue
            met = True
            self._followers[stem] = follower
            self._met_at[stem] = self._now()
            if not follower.is_stranger:
                # Somebody else has taken in what it wrote so far.
                self._feeds.note_process(follower.process)
        return met

    def _begin_again(self) -> None:
        """Forgets what the followers remember, which may be ahead of the store, for its offsets."""
        self._feeds.forget()
        self._failed = []
        for follower in self._followers.values():
            follower.close()
        self._followers.clear()

    def _gather(self, follower: Follower, files: list[Path]) -> bool:
        try:
            return follower.gather(files)
        except Exception as error:  # noqa: BLE001 - one journal must not keep all others from the store
            _raise_if_store_rests(error)
            self._fail(follower, error)
            return False

    def _tell(self, follower: Follower) -> None:
        mark = self._feeds.mark()
        try:
            with self._store.attempt():
                follower.tell()
        except Exception as error:  # noqa: BLE001 - one journal must not keep all others from the store
            _raise_if_store_rests(error)
            self._feeds.back_to(mark)
            self._fail(follower, error)

    def _fail(self, follower: Follower, error: Exception) -> None:
        """Sets all files of a process aside: what is remembered of them may be ahead of the store."""
        self._set_aside(follower.files, error)
        self._failed.append(follower)

    def _set_aside(self, paths: list[Path], error: Exception) -> None:
        log.debug("What failed:", exc_info=error)
        for path in paths:
            self._troubled.add(path, error)

    def _drop_failed(self) -> None:
        """Lets go of those that failed, and of those of which nothing could be read so far."""
        for stem, follower in list(self._followers.items()):
            rests = bool(follower.files) and all(map(self._troubled.rests, follower.files))
            if follower in self._failed or (follower.is_stranger and rests):
                follower.close()
                del self._followers[stem]
        self._failed = []

    def _files(self) -> dict[Stem, list[Path]]:
        """The files of each process; none for one that has left nothing but its last words."""
        troubled: list[Path] = []

        def on_trouble(folder: Path, error: OSError) -> None:
            troubled.append(folder)
            if not self._troubled.rests(folder):
                self._troubled.add(folder, error)

        listing = self._list_folder(on_trouble)
        found: dict[Stem, list[Path]] = {}
        for name, path in listing.journals:
            found.setdefault(name.stem, []).append(path)
        self._troubled.keep_only([path for _, path in listing.journals] + troubled)
        for name in listing.words:
            if name.stem not in self._silent:
                found.setdefault(name.stem, [])
        return found

    def _list_folder(self, on_trouble: Callable[[Path, OSError], None]) -> Listing:
        """Lists the folder of journals; names are read again, and paths made, where a folder has changed."""
        entries: dict[str, list[str]] = {}

        def list_one(folder: str) -> list[str]:
            entries[folder] = self._folders.entries(folder, on_trouble)
            return entries[folder]

        for run in list_one(str(journals_of(self._folder))):
            list_one(run)
        if entries != self._entries:
            self._entries = entries
            self._listing = list_folder(self._folder, entries=lambda folder, _: entries.get(folder, []))
        return self._listing

    def _follow(self, name: JournalName) -> Follower:
        folder = journals_of(self._folder) / name.run_id
        return Follower(name, folder, self._store, self._pulse, self._feeds, self._troubled)

    def _pulse(self, process: Process) -> Pulse:
        said = process.facts.get("stall_after_s")
        stall_after_s = said if isinstance(said, int | float) and said >= 1 else self._stall_after_s
        return Pulse(mark_of(process), stall_after_s, self._now, self._is_alive)

    def _drop_ended(self) -> None:
        for stem, follower in list(self._followers.items()):
            if follower.ended:
                follower.close()
                del self._followers[stem], self._met_at[stem]
                with contextlib.suppress(OSError):  # other processes of the run may have files there
                    (journals_of(self._folder) / stem[0]).rmdir()


def _raise_if_store_rests(error: Exception) -> None:
    """Raises what is no fault of one journal: a store that takes nothing for now, as on a full disk."""
    if isinstance(error, sqlite3.OperationalError) or (
        isinstance(error, StoreError) and isinstance(error.__cause__, sqlite3.OperationalError)
    ):
        raise error
