"""Lists folders repeatedly, and reads only those that have changed."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

MIN_AGE_NS = 2_000_000_000
"""A modification time is trusted from this age: two changes within one tick of the clock look like one."""

MAX_CACHED_S = 5.0
"""How long a listing is reused: some file systems do not update modification times."""


class FolderCache:
    """Listings of folders. An unchanged folder costs one system call, and opens nothing."""

    def __init__(
        self,
        now: Callable[[], float] = time.monotonic,
        wall_clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._now, self._wall_clock_ns = now, wall_clock_ns
        self._listed: dict[str, _CachedListing] = {}

    def entries(self, folder: str, on_error: Callable[[Path, OSError], None] = lambda *_: None) -> list[str]:
        """The paths in a folder; none where it does not exist, or cannot be read."""
        try:
            status = os.stat(folder)  # noqa: PTH116 - several times a second for every run
            mark = (status.st_mtime_ns, status.st_ino, status.st_dev)
            listed = self._listed.get(folder)
            if listed is None or listed.mark != mark or self._now() - listed.read_at >= MAX_CACHED_S:
                is_settled = self._wall_clock_ns() - status.st_mtime_ns > MIN_AGE_NS
                with os.scandir(folder) as entries:
                    paths = [entry.path for entry in entries]
                for removed in set(listed.paths if listed else ()).difference(paths):
                    self._listed.pop(removed, None)
                listed = _CachedListing(mark if is_settled else None, self._now(), paths)
                self._listed[folder] = listed
        except (FileNotFoundError, NotADirectoryError):
            self._listed.pop(folder, None)
            return []
        except OSError as error:
            self._listed.pop(folder, None)
            on_error(Path(folder), error)
            return []
        return listed.paths


class _CachedListing(NamedTuple):
    mark: tuple[int, int, int] | None
    """Modification time, inode and device; None where the modification is too recent to rely on it."""
    read_at: float
    paths: list[str]
