"""Supplies the writer with segments: files, or memory while no file can be written."""

from __future__ import annotations

import contextlib
import errno
import time
from typing import TYPE_CHECKING

from stepscope.filesystem import keeps_reserved_space, kind_of, share
from stepscope.journal.folder import JournalName, bytes_on_disk, files_of, journals_of, make_run_folder
from stepscope.journal.segment import AppendedSegment, MappedSegment, MemorySegment, Segment

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from stepscope.journal.held_file import HeldFile

RETRY_NS = 1_000_000_000
SMALL_BYTES = 1 << 16
MAX_ATTEMPTS = 10_000
"""How many names are tried for a file: there may be old files of processes with the same number."""
MAX_DELETIONS = 3
"""How often a file is made again at once because its folder was deleted meanwhile."""
DELETION_NS = 5_000_000_000
"""How long a folder may be deleted again and again before that is reported."""
UNPUBLISHED = ".new"
"""The suffix of a file while no agent may read it."""


class SegmentSupply:
    """Creates the files of one process's journal, in order, within its size limits."""

    def __init__(  # noqa: PLR0913 - two clocks and three limits from different callers
        self,
        store: Path,
        name: JournalName,
        *,
        segment_bytes: int,
        unread_bytes: int,
        mapping: str,
        clock: Callable[[], int] = time.monotonic_ns,
        wall_clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._store, self._name = store, name
        self._segment_bytes, self._unread_bytes = segment_bytes, unread_bytes
        self._mapped = mapping == "always" or (mapping == "auto" and keeps_reserved_space(kind_of(store)))
        self._clock = clock
        self.clock_base_ns = wall_clock() - clock()
        self._retry_at_ns = 0
        self._next_number = name.number
        self._deleting_since_ns: int | None = None
        """Since when files could not be replaced because their folder is being deleted."""
        self._prepared: Segment | None = None
        self.trouble: str | None = None
        """Why no file could be made; None when one could."""

    def take(self) -> Segment:
        """The next segment: a file, or memory when none can be created; `trouble` then says why."""
        prepared, self._prepared = self._prepared, None
        return prepared or self.make_file() or self._memory()

    def prepare(self) -> None:
        """Creates the next file in advance, so that the training thread does not have to."""
        # For files that grow with write(), the next file tells readers that the previous one is complete.
        if self._mapped and self._prepared is None:
            self._prepared = self.make_file()

    def make_file(self, at_least: int = 0) -> Segment | None:
        """Creates a file of at least that size; retries at most once a second while it fails."""
        return self._attempt(lambda: self._make_file_within_cap(at_least))

    def replace(self, old: HeldFile, at_least: int, fill: Callable[[Segment], None]) -> Segment | None:
        """Creates a file like `make_file` for the records of a deleted one, and fills it.

        It has the id of the old one: a store that has some of its records then stores only the others. It
        gets its name after it is filled: a reader would mistake later records for ones it has read. None
        without `trouble` means that the folder is still being deleted.
        """

        def make() -> Segment:
            segment = self._make_file_within_cap(at_least, old.file_id, UNPUBLISHED)
            if segment.file is not None:
                _publish(segment.file, lambda: fill(segment), lambda: self._remove_copies(old))
            return segment

        def make_in_place() -> Segment | None:
            for _ in range(MAX_DELETIONS):
                with contextlib.suppress(FileNotFoundError):  # the folder is still being deleted
                    segment = make()
                    self._deleting_since_ns = None
                    return segment
            now = self._clock()
            self._deleting_since_ns = self._deleting_since_ns or now
            return None if now - self._deleting_since_ns < DELETION_NS else make()

        return self._attempt(make_in_place)

    def _remove_copies(self, old: HeldFile) -> None:
        """Deletes copies of a deleted file, which came back with an old copy of the folder."""
        for path in files_of(self._store, self._name):
            old.remove_if_copy(path)

    def _attempt(self, make: Callable[[], Segment | None]) -> Segment | None:
        now = self._clock()
        if self.trouble is not None and now < self._retry_at_ns:
            return None
        try:
            segment = make()
        except OSError as error:
            self.trouble = f"{error.strerror or error} ({error.filename or self._store})"
            self._retry_at_ns = now + RETRY_NS
            return None
        self.trouble = None
        return segment

    def try_at_once(self) -> None:
        """Allows the next attempt without a pause after a failed one."""
        self._retry_at_ns = 0

    def give_up_prepared(self) -> None:
        """Seals a file that was created in advance and stays empty."""
        prepared, self._prepared = self._prepared, None
        if prepared is not None:
            prepared.seal()

    def unread(self) -> list[Path]:
        """The files of this process that are not stored yet."""
        return files_of(self._store, self._name)

    def _memory(self) -> Segment:
        return MemorySegment(self._segment_bytes, self.clock_base_ns)

    def _make_file_within_cap(self, at_least: int, file_id: int | None = None, suffix: str = "") -> Segment:
        unread = bytes_on_disk(self._store, self._name)
        if unread >= self._unread_bytes:
            raise OSError(errno.EDQUOT, f"{unread} bytes are waiting for an agent to read them")
        try:
            return self._make_file_of(max(self._segment_bytes, at_least), file_id, suffix)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            return self._make_file_of(max(SMALL_BYTES, at_least), file_id, suffix)

    def _make_file_of(self, size: int, file_id: int | None, suffix: str) -> Segment:
        for _ in range(MAX_ATTEMPTS):
            path = self._name.numbered(self._next_number).path(journals_of(self._store))
            path = path.with_name(path.name + suffix)
            make_run_folder(path.parent)
            try:
                if self._mapped:
                    segment: Segment = MappedSegment.create(path, size, self.clock_base_ns, file_id)
                else:
                    segment = AppendedSegment(path, size, self.clock_base_ns, file_id)
            except FileExistsError:  # an older process of the same pid
                self._next_number += 1
                continue
            except FileNotFoundError:  # the agent removed the empty folder in between
                continue
            share(path, self._store)
            self._next_number += 1
            return segment
        raise OSError(errno.EAGAIN, "No file could be made", str(journals_of(self._store)))


def _publish(file: HeldFile, fill: Callable[[], None], remove_copies: Callable[[], None]) -> None:
    """Fills a file and gives it its name; deletes it where that fails.

    Copies are removed last: they may have come with a folder that has replaced the deleted one only now. If
    one replaces it later still, the file does not get its name.
    """
    try:
        fill()
        remove_copies()
        name = file.path.with_name(file.path.name.removesuffix(UNPUBLISHED))
        file.path.rename(name)
    except OSError:
        file.path.unlink(missing_ok=True)
        raise
    file.path = name
