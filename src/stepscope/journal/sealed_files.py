"""Keeps the full files of a journal open until they are stored, so that a deleted folder loses none."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Any

from stepscope.filesystem import open_regular
from stepscope.journal import layout
from stepscope.journal.folder import END_MARK, EXIT_NOTE_SUFFIX
from stepscope.journal.segment import fill

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from stepscope.journal.held_file import HeldFile, Whereabouts
    from stepscope.journal.segment import Segment

    Replace = Callable[[HeldFile, int, Callable[[Segment], None]], Segment | None]
    """Creates a new file for an old one, of at least that size, and fills it; None if it cannot."""

MAX_HELD = 32

UNCERTAIN_S = 1.0
"""How long a deleted file may still be part of a folder that is being deleted."""

GIVEN_UP_S = 5.0
"""How long the end of a run waits for a deleted file that cannot be written again: whoever deletes the folder
may delete the new one as well."""


class SealedFiles:
    """Complete files, oldest first, each with its number of records."""

    def __init__(self) -> None:
        self._files: list[tuple[HeldFile, int]] = []
        self.last_id: int | None = None
        """The id of the newest file, stored or not; None where there was none in this folder."""
        self.stored = 0
        """Records in files that are stored and deleted."""

    def add(self, segment: Segment) -> None:
        """Adds a sealed segment; one in memory has no file."""
        if segment.file is not None:
            self._files.append((segment.file, segment.committed[1]))
            self.last_id = segment.file.file_id
            if len(self._files) > MAX_HELD:
                self.stored += self._files.pop(0)[1]

    def clear(self) -> None:
        """Closes all files."""
        self._files.clear()
        self.last_id = None

    def leave_behind(self, end: Mapping[str, Any]) -> None:
        """Closes files that were moved, and writes an exit note with the end of the run beside them."""
        moved = next((path for file, _ in self._files if (path := file.moved_to()) is not None), None)
        self.clear()
        if moved is None:
            return
        end_record = {**end, "dropped": 0, "time": time.time_ns()}
        with contextlib.suppress(OSError):
            exit_note = moved.with_name(f"{moved.name.rpartition('.')[0]}{EXIT_NOTE_SUFFIX}")
            descriptor = open_regular(exit_note, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            os.write(descriptor, f"\n{END_MARK}".encode() + layout.to_json(end_record) + b"\n")
            os.close(descriptor)

    def forget_stored(self) -> None:
        """Closes files that are stored."""
        waiting = []
        for file, records in self._files:
            if _whereabouts(file) is None:
                self.stored += records
            else:
                waiting.append((file, records))
        self._files = waiting

    def whereabouts(self) -> Whereabouts:
        """The state of the first file that may not be stored and is not in place; else `in place`."""
        states = (_whereabouts(file) or "in place" for file, _ in self._files)
        return next((state for state in states if state != "in place"), "in place")

    def uncertain(self) -> list[Path]:
        """Deleted files that may not be stored, and were not deleted long ago: they may be written again."""
        return [
            file.path
            for file, _ in self._files
            if _whereabouts(file) in {"in place", "deleted"}
            and file.whereabouts() == "deleted"
            and file.missing_for_s() <= GIVEN_UP_S
        ]

    def deleted_records(self) -> int:
        """Records of files that were deleted before they were stored."""
        return sum(records for file, records in self._files if _whereabouts(file) == "deleted")

    def carry_over(self, replace: Replace) -> int | None:
        """Copies files that are gone; returns the number of records, or None when a file cannot be made."""
        carried = 0
        for at, (file, records) in enumerate(self._files):
            if _whereabouts(file) in {None, "in place"}:
                continue
            copy = _copy(file, replace)
            if copy is None or copy.file is None:
                return None
            self._files[at] = (copy.file, records)
            carried += records
        return carried


def _whereabouts(file: HeldFile) -> Whereabouts | None:
    """The state of a file; None when it is stored: the agent may be deleting files at the moment."""
    state = file.whereabouts()
    if file.is_stored():  # checked afterwards: a file is marked before it is deleted
        return None
    if state != "deleted":
        return state
    if file.descriptor() is None:
        return None  # it cannot be recovered: other code had closed it before it was deleted
    if not file.is_home_in_place():
        return "deleted"
    # Earlier versions of the agent do not mark. But a folder that is being deleted loses its files first.
    return None if file.missing_for_s() > UNCERTAIN_S else "in place"


def _copy(file: HeldFile, replace: Replace) -> Segment | None:
    frames = file.frames()

    def transfer(copy: Segment) -> None:
        fill(copy, frames)
        copy.seal()

    return replace(file, layout.HEADER_BYTES + len(frames), transfer)
