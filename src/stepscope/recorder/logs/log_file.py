"""Log files of one process: appended to, rotated by size, and without partial lines after disk errors."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepscope.descriptors import hold, open_above_streams

if TYPE_CHECKING:
    from pathlib import Path

    from stepscope.descriptors import HeldDescriptor

MIB = 1 << 20
PIECE_BYTES = 256 * 1024


@dataclass(frozen=True)
class Rotation:
    """The maximum size and number of files of one category of one process."""

    max_bytes: int = 16 * MIB
    files: int = 5
    """The file being written and the older ones, whose names end in `.1` (the newest) to `.4`."""


class LogFile:
    """The file at a path, and its rotated files. Only one process writes to it."""

    def __init__(self, path: Path, rotation: Rotation) -> None:
        self._path, self._rotation = path, rotation
        self._held: HeldDescriptor | None = None

    def append(self, data: bytes) -> None:
        """Writes whole lines, all or none of them; raises OSError on disk errors."""
        try:
            descriptor, size = self._open()
            if size and size + len(data) > self._rotation.max_bytes:
                self._rotate()
                descriptor, size = self._open()
            _write(descriptor, size, data)
        except OSError:
            self.close()  # the descriptor may be the problem, as after a remount
            raise

    def close(self) -> None:
        """Closes the file; the next line opens it again."""
        held, self._held = self._held, None
        if held is not None:
            with contextlib.suppress(OSError):
                held.close()

    def _open(self) -> tuple[int, int]:
        """Descriptor and size of the file at the path; reopens it if it was moved or deleted."""
        if self._held is not None:
            with contextlib.suppress(FileNotFoundError):
                there = self._path.stat()
                if self._held.is_own() and os.path.samestat(os.fstat(self._held.number), there):
                    return self._held.number, there.st_size
            self.close()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
        self._held = hold(open_above_streams(self._path, flags))
        return self._held.number, os.fstat(self._held.number).st_size

    def _rotate(self) -> None:
        self.close()
        older = [self._older(number) for number in range(1, self._rotation.files)]
        if not older:
            self._path.unlink()
        for target, source in reversed(list(zip(older, [self._path, *older], strict=False))):
            with contextlib.suppress(FileNotFoundError):
                source.replace(target)

    def _older(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.stem}.{number}{self._path.suffix}")


class LogFolder:
    """A folder with one subfolder for each category, and the lines waiting to be written there."""

    def __init__(self, directory: Path, file_name: str, rotation: Rotation) -> None:
        self._directory, self._file_name, self._rotation = directory, file_name, rotation
        self._files: dict[str, LogFile] = {}
        self._waiting: dict[str, list[bytes]] = {}

    def add(self, category: str, line: bytes) -> None:
        """Queues a line for the next `write`."""
        self._waiting.setdefault(category, []).append(line)

    def write(self) -> None:
        """Writes the queued lines; raises OSError on disk errors, and keeps lines that were not written."""
        for category, lines in self._waiting.items():
            while lines:
                count = _count_for_piece(lines)
                self._file(category).append(b"".join(lines[:count]))
                del lines[:count]

    def forget(self) -> int:
        """Discards the queued lines; returns their number."""
        count = sum(map(len, self._waiting.values()))
        self._waiting.clear()
        return count

    def close(self) -> None:
        """Closes all files."""
        for file in self._files.values():
            file.close()

    def _file(self, category: str) -> LogFile:
        if category not in self._files:
            path = self._directory / category / self._file_name
            self._files[category] = LogFile(path, self._rotation)
        return self._files[category]


def _count_for_piece(lines: list[bytes]) -> int:
    """How many lines, at least one, fit into one write."""
    size = 0
    for count, line in enumerate(lines):
        size += len(line)
        if size > PIECE_BYTES and count:
            return count
    return len(lines)


def _write(descriptor: int, size: int, data: bytes) -> None:
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, size)  # half a line would corrupt the next one, too
        raise
