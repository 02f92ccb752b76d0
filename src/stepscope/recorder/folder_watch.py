"""Detects that the store folder was deleted, moved or replaced during a run, and continues in the new one."""

from __future__ import annotations

import contextlib
import select
import time
from typing import TYPE_CHECKING

from stepscope.descriptors import remember
from stepscope.journal.folder import journals_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from stepscope.descriptors import RememberedFile
    from stepscope.journal.writer import JournalWriter


SETTLE_S = 0.25
"""How long files must be missing before they are created again: new files in a folder that is being deleted
are deleted, too."""


class FolderWatch:
    """Compares the files of a run with those it opened; a check costs a few system calls."""

    def __init__(
        self,
        folder: Path,
        database: Path,
        writer: JournalWriter,
        warn: Callable[[str], None],
        on_new_folder: Callable[[], None] = lambda: None,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder, self._writer = folder, writer
        self._warn, self._on_new_folder, self._now = warn, on_new_folder, now
        self._missing_since: float | None = None
        self._database_path = database
        self._store: RememberedFile | None = None
        self._database: RememberedFile | None = None
        with contextlib.suppress(OSError):
            self._remember()

    def check(self) -> None:
        """Continues in the current folder if it has changed, and logs what happened to earlier records."""
        with contextlib.suppress(OSError):  # no permission, or a network failure: checked again later
            whereabouts = self._writer.whereabouts()
            if whereabouts == "in place":
                self._missing_since = None
                self._check_database()
            elif (whereabouts == "moved" or self._settles_in_s() <= 0) and self._continue_in_folder():
                self._missing_since = None
                self._remember()
                self._on_new_folder()

    def check_at_end(self) -> None:
        """Checks a last time; waits for a deletion that may be going on."""
        self.check()
        if self._missing_since is not None:
            select.select([], [], [], max(self._settles_in_s(), 0))  # clock changes do not affect it
            self.check()

    def _settles_in_s(self) -> float:
        """Seconds until files that are missing count as deleted for good."""
        now = self._now()
        self._missing_since = now if self._missing_since is None else self._missing_since
        return self._missing_since + SETTLE_S - now

    def _remember(self) -> None:
        self._store, self._database = remember(self._folder), remember(self._database_path)

    def _continue_in_folder(self) -> bool:
        is_whole = self._store is None or not self._store.is_in_place()
        if is_whole and self._writer.whereabouts() == "moved":
            self._leave_behind()
            return True
        return self._carry_over(is_whole=is_whole)

    def _check_database(self) -> None:
        if self._database is not None:
            if self._database.is_in_place():
                return
            self._warn(
                f"The database {self._database_path} was deleted or replaced during the run. Recording "
                f"continues in a new one; {self._fate_of_stored()}."
            )
        self._database = remember(self._database_path)

    def _leave_behind(self) -> None:
        new_path = self._writer.moved_to()
        where = "" if new_path is None else f" to {new_path.parents[2]}"
        self._writer.leave_behind(
            {
                "status": "finished",
                "reason": f"the store folder was moved; the run continues in {self._folder}",
            }
        )
        self._writer.sealed.stored = 0
        self._warn(
            f"The store folder {self._folder} was moved{where} during the run. What was recorded so far is "
            f"there; recording continues in a new folder at {self._folder}."
        )

    def _carry_over(self, *, is_whole: bool) -> bool:
        """Copies records that may not be in the store into new files; False while none can be created."""
        carried = self._writer.carry_over()
        if carried is None:
            return False
        name = "store folder" if is_whole else "journal folder"
        place = self._folder if is_whole else journals_of(self._folder)
        has_database = self._database is not None and self._database.is_in_place()
        fate = "nothing is lost" if has_database else self._fate_of_stored()
        self._warn(
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
