"""Opens files above the standard streams, and checks whether a descriptor is still the file that was opened.

A training may close any descriptor: daemons close all of them. The next file it opens then gets the lowest
free number, and we must not write to it or close it.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import sys
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOWEST = 3
"""The first descriptor that is not a standard stream."""
HELD_FROM = 512
"""Long-lived descriptors have high numbers, which few programs reach."""
MAX_ATTEMPTS = 8
_REFERENCE = getattr(os, "O_PATH", None)
"""Opens a file for nothing but to name it: closing it does not end another descriptor's locks."""


def open_above_streams(path: Path | str, flags: int, mode: int = 0o666) -> int:
    """Opens a file, but never as a closed standard stream: it would receive printed text."""
    descriptor = os.open(path, flags | os.O_CLOEXEC, mode)
    if descriptor >= LOWEST:
        return descriptor
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, LOWEST)
    finally:
        os.close(descriptor)


class HeldDescriptor:
    """A long-lived descriptor, used and closed only while it is still the file that was opened."""

    def __init__(self, descriptor: int) -> None:
        self.number = descriptor
        self._file = os.fstat(descriptor)

    def is_own(self) -> bool:
        """Whether the descriptor is still that of the file."""
        try:
            return os.path.samestat(self._file, os.fstat(self.number))
        except OSError:  # closed by other code
            return False

    def reopen(self, path: Path, flags: int) -> bool:
        """Opens the file again where other code has closed it; False when another file is at its path."""
        with contextlib.suppress(OSError):
            descriptor = open_above_streams(path, flags | os.O_NONBLOCK)
            if os.path.samestat(self._file, os.fstat(descriptor)):
                self.number = _raised(descriptor)
                return True
            os.close(descriptor)
        return False

    def close(self) -> None:
        """Closes the file, once."""
        if self.is_own():
            os.close(self.number)
        self.number = -1


class RememberedFile:
    """The file or folder that is at a path now.

    It is kept open where that needs no right to read it, so that no later file can get its number: many file
    systems give the number of a deleted file to the next one.
    """

    def __init__(self, path: Path) -> None:
        """Raises OSError when there is none."""
        self.path = path
        if _REFERENCE is None:
            self._file = path.stat()
        else:
            self._held = hold(open_above_streams(path, _REFERENCE))
            weakref.finalize(self, self._held.close)
            self._file = os.fstat(self._held.number)

    def is_in_place(self) -> bool:
        """Whether it is still the one at its path; raises OSError where that is unknown."""
        try:
            return os.path.samestat(self._file, self.path.stat())
        except (FileNotFoundError, NotADirectoryError):
            return False


def remember(path: Path) -> RememberedFile | None:
    """What is at a path now; None for nothing."""
    try:
        return RememberedFile(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def hold(descriptor: int) -> HeldDescriptor:
    """Moves an open file to a high descriptor, to keep it open for long."""
    return HeldDescriptor(_raised(descriptor))


def map_file(descriptor: int, size: int) -> tuple[mmap.mmap, HeldDescriptor | None]:
    """Maps a file; also returns the descriptor that the mapping itself keeps and closes, if it has one."""
    if sys.version_info >= (3, 13):
        return mmap.mmap(descriptor, size, trackfd=False), None
    for _ in range(MAX_ATTEMPTS):
        with _standard_streams_taken():
            # The mapping duplicates the descriptor and does not return its number: the lowest free one.
            number = os.dup(descriptor)
            os.close(number)
            mapping = mmap.mmap(descriptor, size)
        with contextlib.suppress(OSError):  # another thread was faster
            if os.path.samestat(os.fstat(number), os.fstat(descriptor)):
                return mapping, HeldDescriptor(number)
    return mapping, None


@contextlib.contextmanager
def _standard_streams_taken() -> Iterator[None]:
    """Prevents files opened in the block from becoming closed standard streams."""
    taken = []
    try:
        # The root folder always exists, and nothing can be printed to it.
        while (descriptor := os.open("/", os.O_RDONLY | os.O_CLOEXEC)) < LOWEST:
            taken.append(descriptor)
        os.close(descriptor)
        yield
    finally:
        for stream in taken:
            os.close(stream)


def _raised(descriptor: int) -> int:
    try:
        raised = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, HELD_FROM)
    except OSError:  # the limit of this process is lower
        return descriptor
    os.close(descriptor)
    return raised
