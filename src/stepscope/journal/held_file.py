"""Keeps a journal file open, so that it can still be read after it was deleted or moved."""

from __future__ import annotations

import contextlib
import os
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from stepscope.descriptors import RememberedFile, remember
from stepscope.journal import layout
from stepscope.journal.folder import header_of

if TYPE_CHECKING:
    from stepscope.descriptors import HeldDescriptor

Whereabouts = Literal["in place", "deleted", "moved"]


class HeldFile:
    """A journal file with an open descriptor, which is reopened if other code has closed it."""

    def __init__(self, path: Path, descriptor: HeldDescriptor, flags: int, file_id: int) -> None:
        self.path, self._held, self._flags = path, descriptor, flags
        self.file_id = file_id
        """The id under which the store keeps the offset of the file."""
        self._home = _home_of(path)
        self._missed_at_s: float | None = None

    def descriptor(self) -> int | None:
        """A descriptor of this file; None where it was closed and another file, or none, is at its path."""
        is_open = self._held.is_own() or self._held.reopen(self.path, self._flags)
        return self._held.number if is_open else None

    def whereabouts(self) -> Whereabouts:
        """Whether the file is still at its path; `in place` where that is unknown."""
        descriptor = self.descriptor()
        if descriptor is None:
            return "deleted"
        try:
            if os.path.samestat(os.fstat(descriptor), self.path.stat()):
                return "in place"
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError:  # no permission, or the network is down
            return "in place"
        return "deleted" if self.moved_to() is None else "moved"

    def is_home_in_place(self) -> bool:
        """Whether the journal folder is still the one in which the file was created."""
        try:
            return self._home is not None and self._home.is_in_place()
        except OSError:
            return False

    def missing_for_s(self) -> float:
        """Seconds since the first call, which was made when the file was found to be deleted."""
        now_s = time.monotonic()
        self._missed_at_s = now_s if self._missed_at_s is None else self._missed_at_s
        return now_s - self._missed_at_s

    def moved_to(self) -> Path | None:
        """The current path of the file; None when it was deleted."""
        descriptor = self.descriptor()
        if descriptor is None:
            return None
        try:
            path = Path(f"/proc/self/fd/{descriptor}").readlink()
            same = os.path.samestat(os.fstat(descriptor), path.stat())
        except OSError:
            return None
        # A network file system renames a file that is deleted while it is open.
        return path if same and path.name == self.path.name else None

    def is_stored(self) -> bool:
        """Whether the agent has marked the file as completely stored."""
        descriptor = self.descriptor()
        return descriptor is not None and os.pread(descriptor, 1, layout.STORED_AT) == b"\x01"

    def frames(self) -> bytes:
        """Every frame written so far; no frame may be written during the call."""
        descriptor = self.descriptor()
        if descriptor is None:
            return b""
        return trimmed(os.pread(descriptor, os.fstat(descriptor).st_size, layout.HEADER_BYTES))

    def remove_if_copy(self, path: Path) -> None:
        """Deletes the file at a path if it is a copy of this one: the store takes only one of the two."""
        head, _ = header_of(path)
        if int.from_bytes(head[layout.FILE_ID], "little") != self.file_id:
            return
        descriptor = self.descriptor()
        with contextlib.suppress(OSError):
            if descriptor is None or not os.path.samestat(path.stat(), os.fstat(descriptor)):
                path.unlink()

    def __del__(self) -> None:
        self._held.close()


_homes: weakref.WeakValueDictionary[Path, RememberedFile] = weakref.WeakValueDictionary()


def _home_of(path: Path) -> RememberedFile | None:
    """The journal folder in which a file is created, remembered once for all files of it."""
    folder = path.parents[1]
    home = _homes.get(folder)
    try:
        if home is None or not home.is_in_place():
            home = remember(folder)
    except OSError:
        return None
    if home is not None:
        _homes[folder] = home
    return home


def trimmed(frames: bytes) -> bytes:
    """Frames without the unused zeros after them; the last eight bytes of a frame are never all zero."""
    used = len(frames.rstrip(b"\0"))
    return frames[: used + -used % 8]
