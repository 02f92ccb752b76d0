"""Notices when SQLite has passed over the newest transactions because its write-ahead log is damaged.

SQLite takes the log up to the first frame whose checksum is wrong, and says nothing of what comes after: a
store would seem shorter than it is. Here the log is damaged if a transaction was completed behind the end
that SQLite sees, and the frames between do not check out. What was written a moment ago does.
"""

from __future__ import annotations

import mmap
import struct
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

LOOKS = 5
PAUSE_S = 0.05
"""Between two looks: a writer may be in the middle of a frame, or of a new log."""

_HEADER = struct.Struct(">IIIIIIII")
_FRAME = struct.Struct(">IIIIII")
_MAGIC = 0x377F0682
_INDEX = struct.Struct("=12xBBHI")
"""The beginning of the log's index: whether it is in use, byte order, page size, how many frames it has."""


@dataclass(frozen=True)
class _Log:
    """A log as its header describes it."""

    data: mmap.mmap | bytes
    order: str
    page_bytes: int
    salts: tuple[int, int]
    checksum: tuple[int, int]
    """Of the header, from which that of the first frame goes on."""

    @property
    def frame_bytes(self) -> int:
        """The length of a frame."""
        return _FRAME.size + self.page_bytes

    def place(self, number: int) -> int:
        """Where a frame begins."""
        return _HEADER.size + number * self.frame_bytes


def is_damaged(database: Path) -> bool:
    """Whether completed transactions in the log cannot be read; to be asked of a store that is open."""
    for _ in range(LOOKS):
        if not _looks_damaged(database):
            return False
        time.sleep(PAUSE_S)
    return True


def _looks_damaged(database: Path) -> bool:
    try:
        index = Path(f"{database}-shm").read_bytes()[: _INDEX.size]
        with Path(f"{database}-wal").open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError):
        return False  # there is none, or it is empty, or not ours to read
    with data:
        if len(data) <= _HEADER.size or len(index) < _INDEX.size:
            return False
        magic, _, page_bytes, _, *salts, first, second = _HEADER.unpack_from(data)
        order = ">" if magic & 1 else "<"
        if magic | 1 != _MAGIC | 1 or _checksum(data[:24], order) != (first, second):
            return True
        in_use, _, _, seen = _INDEX.unpack_from(index)
        log = _Log(data, order, page_bytes, (salts[0], salts[1]), (first, second))
        return bool(in_use) and _breaks_off(log, seen)


def _breaks_off(log: _Log, seen: int) -> bool:
    """Whether a transaction ends behind so many frames, and one of the frames up to there is damaged."""
    last = _last_end(log)
    if last is None or last < seen:
        return False
    checked = log.checksum if seen == 0 else _said(log, seen - 1)
    for number in range(seen, last + 1):
        at = log.place(number)
        checked = _checksum(log.data[at : at + 8], log.order, checked)
        checked = _checksum(log.data[at + _FRAME.size : at + log.frame_bytes], log.order, checked)
        if checked != _said(log, number):
            return True
    return False


def _last_end(log: _Log) -> int | None:
    """The last frame of this log, and not of one whose place it has taken, with which a transaction ends."""
    count = (len(log.data) - _HEADER.size) // log.frame_bytes
    frames = np.ndarray((count, 6), ">u4", log.data, _HEADER.size, (log.frame_bytes, 4))
    is_end = (frames[:, 1] != 0) & (frames[:, 2] == log.salts[0]) & (frames[:, 3] == log.salts[1])
    ends = np.flatnonzero(is_end)
    return int(ends[-1]) if len(ends) else None


def _said(log: _Log, number: int) -> tuple[int, int]:
    """The checksum that is written in a frame."""
    *_, first, second = _FRAME.unpack_from(log.data, log.place(number))
    return first, second


def _checksum(data: bytes, order: str, start: tuple[int, int] = (0, 0)) -> tuple[int, int]:
    """SQLite's own checksum, which goes on from that of the frame before."""
    first, second = start
    words = iter(struct.unpack(f"{order}{len(data) // 4}I", data))
    for even, odd in zip(words, words, strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return first, second
