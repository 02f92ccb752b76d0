"""Holds a journal file open, so that it can still be read after somebody deleted or moved it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from stepscope.journal import layout

if TYPE_CHECKING:
    from stepscope.descriptors import HeldDescriptor

Whereabouts = Literal["in place", "deleted", "moved"]


class HeldFile:
    """A journal file and a descriptor of it, which is opened again if other code has closed it."""

    def __init__(self, path: Path, descriptor: HeldDescriptor, flags: int, file_id: int) -> None:
        self.path, self._held, self._flags = path, descriptor, flags
        self.file_id = file_id
        """The id by which the store knows how far the file was read."""
        self._home = _identity(path.parents[1])

    def descriptor(self) -> int | None:
        """A descriptor of this very file; None where it was closed, and the file is not at its path."""
        is_open = self._held.is_own() or self._held.reopen(self.path, self._flags)
        return self._held.number if is_open else None

    def whereabouts(self) -> Whereabouts:
        """Whether the file is still at its path; `in place` where that cannot be told."""
        descriptor = self.descriptor()
        if descriptor is None:
            return "deleted"
        try:
            if os.path.samestat(os.fstat(descriptor), self.path.stat()):
                return "in place"
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError:  # no right to look any more, or a network that is away
            return "in place"
        return "deleted" if self.moved_to() is None else "moved"

    def is_home_in_place(self) -> bool:
        """Whether the folder of all journals is still the one in which the file was made."""
        return self._home is not None and self._home == _identity(self.path.parents[1])

    def moved_to(self) -> Path | None:
        """Where the file is now; None when it was deleted."""
        descriptor = self.descriptor()
        if descriptor is None:
            return None
        try:
            path = Path(f"/proc/self/fd/{descriptor}").readlink()
            same = os.path.samestat(os.fstat(descriptor), path.stat())
        except OSError:
            return None
        # A network file system renames what is deleted while it is open.
        return path if same and path.name == self.path.name else None

    def is_stored(self) -> bool:
        """Whether the agent said that the store has every record of the file."""
        descriptor = self.descriptor()
        return descriptor is not None and os.pread(descriptor, 1, layout.STORED_AT) == b"\x01"

    def frames(self) -> bytes:
        """Every frame written so far; none may be written meanwhile."""
        descriptor = self.descriptor()
        if descriptor is None:
            return b""
        return trimmed(os.pread(descriptor, os.fstat(descriptor).st_size, layout.HEADER_BYTES))

    def remove_copy(self) -> None:
        """Deletes a copy of the file that was put in its place: it would be read beside the new file."""
        descriptor = self.descriptor()
        try:
            with self.path.open("rb") as file:
                head = file.read(layout.HEADER_BYTES)
                status = os.fstat(file.fileno())
            is_other = descriptor is None or not os.path.samestat(status, os.fstat(descriptor))
            if is_other and int.from_bytes(head[layout.FILE_ID], "little") == self.file_id:
                self.path.unlink()
        except OSError:
            return

    def __del__(self) -> None:
        self._held.close()


def _identity(folder: Path) -> tuple[int, int] | None:
    try:
        status = folder.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def trimmed(frames: bytes) -> bytes:
    """Frames without the unused zeros behind them; the last eight bytes of a frame are never all zero."""
    used = len(frames.rstrip(b"\0"))
    return frames[: used + -used % 8]
