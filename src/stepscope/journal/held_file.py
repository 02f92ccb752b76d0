"""Holds a journal file open, so that it can still be read after somebody deleted or moved it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from stepscope.journal import layout

Whereabouts = Literal["in place", "deleted", "moved"]


class HeldFile:
    """A journal file and the descriptor it was made with."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path, self._descriptor = path, descriptor
        self._home = _identity(path.parents[1])

    def whereabouts(self) -> Whereabouts:
        """Whether the file is still at its path; `in place` where that cannot be told."""
        held = os.fstat(self._descriptor)
        try:
            if os.path.samestat(held, self.path.stat()):
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
        try:
            path = Path(f"/proc/self/fd/{self._descriptor}").readlink()
            same = os.path.samestat(os.fstat(self._descriptor), path.stat())
        except OSError:
            return None
        # A network file system renames what is deleted while it is open.
        return path if same and path.name == self.path.name else None

    def file_id(self) -> int:
        """The id by which the store knows how far the file was read."""
        return int.from_bytes(os.pread(self._descriptor, 8, layout.FILE_ID.start), "little")

    def is_stored(self) -> bool:
        """Whether the agent said that the store has every record of the file."""
        return os.pread(self._descriptor, 1, layout.STORED_AT) == b"\x01"

    def frames(self) -> bytes:
        """Every frame written so far; none may be written meanwhile."""
        size = os.fstat(self._descriptor).st_size
        return trimmed(os.pread(self._descriptor, size, layout.HEADER_BYTES))

    def remove_copy(self) -> None:
        """Deletes a copy of the file that was put in its place: it would be read beside the new file."""
        try:
            with self.path.open("rb") as file:
                head = file.read(layout.HEADER_BYTES)
                is_other = not os.path.samestat(os.fstat(file.fileno()), os.fstat(self._descriptor))
            if is_other and int.from_bytes(head[layout.FILE_ID], "little") == self.file_id():
                self.path.unlink()
        except OSError:
            return

    def __del__(self) -> None:
        os.close(self._descriptor)


def _identity(folder: Path) -> tuple[int, int] | None:
    try:
        found = folder.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def trimmed(frames: bytes) -> bytes:
    """Frames without the unused zeros behind them; the last eight bytes of a frame are never all zero."""
    used = len(frames.rstrip(b"\0"))
    return frames[: used + -used % 8]
