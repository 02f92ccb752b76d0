"""Turns journal records into store rows, each exactly once."""

from __future__ import annotations

import contextlib
import logging
import time
from typing import TYPE_CHECKING

from stepscope.agent.ingest.feeds import Feeds
from stepscope.agent.ingest.follower import Follower
from stepscope.agent.ingest.known_processes import mark_of
from stepscope.agent.ingest.set_aside import SetAsideJournals
from stepscope.agent.liveness import ProcessLiveness
from stepscope.errors import StoreError, StoreUnavailable
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

MAX_UNKNOWN_S = 10.0
"""How long a journal may have no readable record before its process does not count as live."""


class Ingest:
    """Follows all journals of a store folder. Rows and the offset they came from are committed together."""

    def __init__(  # noqa: PLR0913, PLR0917 - each is injected by a different caller
        self,
        folder: Path,
        store: Store,
        stall_after_s: float = 60.0,
        now: Callable[[], float] = time.monotonic,
        is_alive: Callable[[procfs.ProcessMark], bool | None] | None = None,
        feeds: Feeds | None = None,
        is_in_place: Callable[[], bool] = lambda: True,
    ) -> None:
        """`stall_after_s` applies to runs whose own settings do not set it."""
        self._folder, self._store, self._is_in_place = folder, store, is_in_place
        self._folders = FolderCache()
        self._entries: dict[str, list[str]] = {}
        """The entries of each journal folder when it was last listed."""
        self._listing = Listing([], [])
        self._feeds = feeds or Feeds()
        self._stall_after_s, self._now, self._is_alive = stall_after_s, now, is_alive
        self._followers: dict[Stem, Follower] = {}
        self._opened_at: dict[Stem, float] = {}
        self._set_aside_journals = SetAsideJournals(folder, store, now)
        self._failed: list[Follower] = []
        self._deleted_ids: list[int] = []
        self._finished: set[Stem] = set()
        """Processes without a journal whose end is in the store."""

    def tick(self) -> bool:
        """Stores what has come; returns True when more is waiting already."""
        try:
            return self._tick_or_fail()
        except BaseException:
            self._reset()
            raise

    @property
    def live(self) -> bool:
        """Whether any process may still write; one without a readable record for a while does not count."""
        now = self._now()
        return self._set_aside_journals.has_retryable or any(
            not follower.is_unknown or now - self._opened_at[stem] < MAX_UNKNOWN_S
            for stem, follower in self._followers.items()
        )

    def processes_here(self) -> list[Process]:
        """The processes of this host that may still write and that the store knows."""
        local = [follower.process for follower in self._followers.values() if follower.is_here]
        return [process for process in local if process.started_ns]

    def sync(self) -> None:
        """Syncs all journals to disk."""
        for follower in self._followers.values():
            follower.sync()

    def close(self) -> None:
        """Closes all files."""
        for follower in self._followers.values():
            follower.close()

    def _tick_or_fail(self) -> bool:
        files = self._files()
        has_new = self._open_new(files)
        updated = [
            follower
            for stem, follower in list(self._followers.items())
            if self._read(follower, files.get(stem, []))
        ]
        if self._followers and not self._is_in_place():
            # What was read may be of another folder at the same path, with its own agent.
            raise StoreError(f"the store in {self._folder} was deleted, moved or replaced")
        if updated:
            with self._store.transaction():
                self._store.forget_progress(self._deleted_ids)
                for follower in updated:
                    self._store_follower(follower)
            self._deleted_ids = []
        self._drop_failed()
        for follower in self._followers.values():
            follower.mark_stored()
        if updated or has_new:
            self._feeds.deliver()
            self._feeds.end_round()
        for follower in self._followers.values():
            self._deleted_ids += follower.delete_stored_files()
        is_behind = not all(follower.caught_up for follower in self._followers.values())
        self._drop_ended()
        self._set_aside_journals.save()
        return is_behind

    @property
    def blocked_reason(self) -> str:
        """Why a journal is not stored, and what to do about it; empty when all are."""
        return self._set_aside_journals.blocked_reason

    def _open_new(self, files: dict[Stem, list[Path]]) -> bool:
        """Begins to follow new journals; returns True when there were any."""
        has_new = False
        for stem, paths in files.items():
            if stem in self._followers or (paths and all(map(self._set_aside_journals.is_waiting, paths))):
                continue
            try:
                follower = self._follow(JournalName(*stem))
            except Exception as error:  # noqa: BLE001 - one journal must not keep all others from the store
                _raise_if_store_unavailable(error)
                self._set_aside(paths, error)
                continue
            if not paths and not follower.has_unstored_end:
                follower.close()
                self._finished.add(stem)
                continue
            has_new = True
            self._followers[stem] = follower
            self._opened_at[stem] = self._now()
            if not follower.is_unknown:
                # Another agent or reader has stored what it wrote so far.
                self._feeds.add_process(follower.process)
        return has_new

    def _reset(self) -> None:
        """Drops all followers, whose state may be ahead of the store; they start again from its offsets."""
        self._feeds.clear()
        self._failed = []
        for follower in self._followers.values():
            follower.close()
        self._followers.clear()

    def _read(self, follower: Follower, files: list[Path]) -> bool:
        try:
            return follower.read(files)
        except Exception as error:  # noqa: BLE001 - one journal must not keep all others from the store
            _raise_if_store_unavailable(error)
            self._fail(follower, error)
            return False

    def _store_follower(self, follower: Follower) -> None:
        position = self._feeds.position()
        try:
            with self._store.attempt():
                follower.store()
        except Exception as error:  # noqa: BLE001 - one journal must not keep all others from the store
            _raise_if_store_unavailable(error)
            self._feeds.truncate(position)
            self._fail(follower, error)

    def _fail(self, follower: Follower, error: Exception) -> None:
        """Sets all files of a process aside: the follower's state may be ahead of the store."""
        self._set_aside(follower.files, error)
        self._failed.append(follower)

    def _set_aside(self, paths: list[Path], error: Exception) -> None:
        log.debug("What failed:", exc_info=error)
        for path in paths:
            self._set_aside_journals.add(path, error)

    def _drop_failed(self) -> None:
        """Closes followers that failed, and those of which nothing could be read so far."""
        for stem, follower in list(self._followers.items()):
            is_waiting = bool(follower.files) and all(
                map(self._set_aside_journals.is_waiting, follower.files)
            )
            if follower in self._failed or (follower.is_unknown and is_waiting):
                follower.close()
                del self._followers[stem]
        self._failed = []

    def _files(self) -> dict[Stem, list[Path]]:
        """The files of each process; an empty list for a process that has left only an exit note."""
        unreadable: list[Path] = []

        def on_error(folder: Path, error: OSError) -> None:
            unreadable.append(folder)
            if not self._set_aside_journals.is_waiting(folder):
                self._set_aside_journals.add(folder, error)

        listing = self._list_folder(on_error)
        files: dict[Stem, list[Path]] = {}
        for name, path in listing.journals:
            files.setdefault(name.stem, []).append(path)
        self._set_aside_journals.keep_only([path for _, path in listing.journals] + unreadable)
        for name in listing.exit_notes:
            if name.stem not in self._finished:
                files.setdefault(name.stem, [])
        return files

    def _list_folder(self, on_error: Callable[[Path, OSError], None]) -> Listing:
        """Lists the journal folder; names are parsed again only where a folder has changed."""
        entries: dict[str, list[str]] = {}

        def list_entries(folder: str) -> list[str]:
            entries[folder] = self._folders.entries(folder, on_error)
            return entries[folder]

        for run in list_entries(str(journals_of(self._folder))):
            list_entries(run)
        if entries != self._entries:
            self._entries = entries
            self._listing = list_folder(self._folder, entries=lambda folder, _: entries.get(folder, []))
        return self._listing

    def _follow(self, name: JournalName) -> Follower:
        folder = journals_of(self._folder) / name.run_id
        return Follower(name, folder, self._store, self._liveness, self._feeds, self._set_aside_journals)

    def _liveness(self, process: Process) -> ProcessLiveness:
        own_limit = process.facts.get("stall_after_s")
        stall_after_s = (
            own_limit if isinstance(own_limit, int | float) and own_limit >= 1 else self._stall_after_s
        )
        return ProcessLiveness(mark_of(process), stall_after_s, self._now, self._is_alive)

    def _drop_ended(self) -> None:
        for stem, follower in list(self._followers.items()):
            if follower.ended:
                follower.close()
                del self._followers[stem], self._opened_at[stem]
                with contextlib.suppress(OSError):  # other processes of the run may have files there
                    (journals_of(self._folder) / stem[0]).rmdir()


def _raise_if_store_unavailable(error: Exception) -> None:
    """Raises an error that is not the journal's fault: a store that cannot be written, as on a full disk."""
    if isinstance(error, StoreUnavailable):
        raise error
