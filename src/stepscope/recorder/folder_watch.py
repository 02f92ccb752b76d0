"""Notices that the store folder was deleted, moved or replaced under a run, and goes on in the new one."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from stepscope.journal.folder import journals_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from stepscope.journal.writer import JournalWriter

FileId = tuple[int, int]
"""Device and inode."""


class FolderWatch:
    """Compares the files of a run with those it opened; a look costs a few system calls."""

    def __init__(
        self,
        folder: Path,
        database: Path,
        writer: JournalWriter,
        tell: Callable[[str], None],
        on_new_folder: Callable[[], None] = lambda: None,
    ) -> None:
        self._folder, self._writer = folder, writer
        self._tell, self._on_new_folder = tell, on_new_folder
        self._database_path = database
        self._folder_id: FileId | None = None
        self._database_id: FileId | None = None
        with contextlib.suppress(OSError):
            self._learn()

    def look(self) -> None:
        """Goes on in the folder as it is now, and says what became of the records so far."""
        with contextlib.suppress(OSError):  # no right to look, or a network that is away: it is looked again
            if self._writer.whereabouts() == "in place":
                self._look_at_database()
            elif self._follow():
                self._learn()
                self._on_new_folder()

    def _learn(self) -> None:
        self._folder_id, self._database_id = _id_of(self._folder), _id_of(self._database_path)

    def _follow(self) -> bool:
        is_whole = _id_of(self._folder) != self._folder_id
        if is_whole and self._writer.whereabouts() == "moved":
            self._leave_behind()
            return True
        return self._carry_over(is_whole=is_whole)

    def _look_at_database(self) -> None:
        found = _id_of(self._database_path)
        if self._database_id is not None and found != self._database_id:
            self._tell(
                f"The database {self._database_path} was deleted or replaced during the run. Recording "
                f"continues in a new one; {self._fate_of_stored()}."
            )
        self._database_id = found

    def _leave_behind(self) -> None:
        new_path = self._writer.moved_to()
        where = "" if new_path is None else f" to {new_path.parents[2]}"
        self._writer.leave_behind(
            {"status": "finished", "reason": f"the store folder was moved; the run goes on in {self._folder}"}
        )
        self._writer.sealed.stored = 0
        self._tell(
            f"The store folder {self._folder} was moved{where} during the run. What was recorded so far is "
            f"there; recording continues in a new folder at {self._folder}."
        )

    def _carry_over(self, *, is_whole: bool) -> bool:
        """Copies what the store may not have into new files; False while none can be made."""
        carried = self._writer.carry_over()
        if carried is None:
            return False
        name = "store folder" if is_whole else "journal folder"
        place = self._folder if is_whole else journals_of(self._folder)
        database_is_gone = self._database_id is not None and _id_of(self._database_path) != self._database_id
        fate = self._fate_of_stored() if database_is_gone or self._database_id is None else "nothing is lost"
        self._tell(
            f"The {name} {place} was deleted during the run. Recording continues in a new one with the last "
            f"{_records(carried)} of this process; {fate}."
        )
        return True

    def _fate_of_stored(self) -> str:
        stored, self._writer.sealed.stored = self._writer.sealed.stored, 0
        figures = "figures of the machine stored before are lost"
        return f"{_records(stored)} and {figures}" if stored else f"only {figures}"


def _records(count: int) -> str:
    return f"{count:,} record{'' if count == 1 else 's'}"


def _id_of(path: Path) -> FileId | None:
    """Which file or folder is at a path; None when there is none."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino
