"""Detects that SQLite has ignored the newest transactions because its write-ahead log is damaged.

SQLite reads the log up to the first frame whose checksum is wrong, and ignores the rest without an error: a
store would seem shorter than it is. Here the log is damaged if a transaction was completed after the end that
SQLite sees, and the frames in between have wrong checksums. Frames that were just written have correct ones.

A log that was cut off at the end of a transaction, or deleted, looks complete. So transactions are counted,
in the database and, once each is on disk, in a file beside it: eight bytes for the number and four for its
CRC-32. That file exists for as long as there is a log.
"""

from __future__ import annotations

import contextlib
import os
import struct
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from stepscope.descriptors import HeldDescriptor
from stepscope.filesystem import open_regular, read_regular
from stepscope.store.sqlite.checksums import row_count

if TYPE_CHECKING:
    import sqlite3

COMMITS_SUFFIX = "-commits"
"""The suffix of the file that counts the transactions on disk."""

_COMMITS = struct.Struct("<Q")
_ROW = ("", "commit")
"""The key of the count in the table `tally`."""

CHECKS = 5
PAUSE_S = 0.05
"""The pause between two checks: a writer may be in the middle of a frame, or of a new log."""

_HEADER = struct.Struct(">IIIIIIII")
_FRAME = struct.Struct(">IIIIII")
_MAGIC = 0x377F0682
_INDEX = struct.Struct("=12xBBHI")
"""The beginning of the log's index: whether it is in use, byte order, page size, number of frames."""

_indexes: dict[Path, HeldDescriptor] = {}
"""The open index of each log. A process that closes a file loses all locks that it has on it, and SQLite's
are on this one: without them another process would take it for unused, and empty it."""
_indexes_lock = threading.Lock()


class CommitCount:
    """Counts the transactions of the one connection that writes."""

    def __init__(self, connection: sqlite3.Connection, database: Path | None) -> None:
        """Counts beside a database file; None is one in memory, which nothing can outlive."""
        self._connection = connection
        self._path = None if database is None else Path(f"{database}{COMMITS_SUFFIX}")
        self._file: int | None = None
        self._number = commits_in(connection)
        self._write()

    def add(self) -> None:
        """Counts the transaction that is about to be committed, within it."""
        self._connection.execute(
            "INSERT INTO tally VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET rows = excluded.rows",
            (*_ROW, self._number + 1),
        )

    def mark_on_disk(self) -> None:
        """Writes to the file beside the database that the transaction is on disk."""
        self._number += 1
        self._write()

    def close(self, *, is_log_empty: bool) -> None:
        """Closes the file, and deletes it where the log is empty."""
        if self._path is not None and self._file is not None:
            os.close(self._file)
            self._file = None
            if is_log_empty:
                with contextlib.suppress(OSError):
                    self._path.unlink(missing_ok=True)

    def _write(self) -> None:
        if self._path is None:
            return
        number = _COMMITS.pack(self._number)
        with contextlib.suppress(OSError):  # no room, or not a regular file: the store works without it
            if self._file is None:
                self._file = open_regular(self._path, os.O_WRONLY | os.O_CREAT, 0o644)
            os.pwrite(self._file, number + crc32(number).to_bytes(4, "little"), 0)


def commits_in(connection: sqlite3.Connection) -> int:
    """How many transactions a database has; 0 where they were not counted."""
    return row_count(connection, *_ROW) or 0


def commits_on_disk(database: Path) -> int:
    """How many transactions a database must have at least; 0 where that is unknown.

    Call it before reading the database: its writer goes on.
    """
    try:
        data = read_regular(Path(f"{database}{COMMITS_SUFFIX}"))
    except OSError:
        return 0
    number, expected = data[: _COMMITS.size], data[_COMMITS.size :]
    if len(number) < _COMMITS.size or expected != crc32(number).to_bytes(4, "little"):
        return 0
    return int(_COMMITS.unpack(number)[0])


@dataclass(frozen=True)
class _Log:
    """A log as its header describes it."""

    data: bytes
    order: str
    page_bytes: int
    salts: tuple[int, int]
    checksum: tuple[int, int]
    """The checksum of the header, from which that of the first frame continues."""

    @property
    def frame_bytes(self) -> int:
        """The length of a frame."""
        return _FRAME.size + self.page_bytes

    def offset(self, number: int) -> int:
        """The byte offset of a frame."""
        return _HEADER.size + number * self.frame_bytes


def is_damaged(database: Path) -> bool:
    """Whether completed transactions in the log cannot be read; call it while the store is open."""
    for _ in range(CHECKS):
        if not _looks_damaged(database):
            return False
        time.sleep(PAUSE_S)
    return True


def _looks_damaged(database: Path) -> bool:
    try:
        index = _read_index(Path(f"{database}-shm"))
        # Read and not mapped: its writer may truncate it, and access beyond the end kills the process.
        data = Path(f"{database}-wal").read_bytes()
    except OSError:
        return False  # there is none, or this user may not read it
    if len(data) <= _HEADER.size or len(index) < _INDEX.size:
        return False
    magic, _, page_bytes, _, *salts, first, second = _HEADER.unpack_from(data)
    order = ">" if magic & 1 else "<"
    if magic | 1 != _MAGIC | 1 or _checksum(data[:24], order) != (first, second):
        return True
    in_use, _, _, frames_seen = _INDEX.unpack_from(index)
    log = _Log(data, order, page_bytes, (salts[0], salts[1]), (first, second))
    return bool(in_use) and _breaks_off(log, frames_seen)


def _read_index(path: Path) -> bytes:
    """The beginning of the log's index, which stays open until another file is at its path."""
    with _indexes_lock:
        held = _indexes.get(path)
        if held is None or not held.is_own() or not os.path.samestat(path.stat(), os.fstat(held.number)):
            if held is not None and held.is_own() and not os.fstat(held.number).st_nlink:
                held.close()  # a deleted file, on which no other process can begin to rely
            held = _indexes[path] = HeldDescriptor(open_regular(path, os.O_RDONLY))
        return os.pread(held.number, _INDEX.size, 0)


def _breaks_off(log: _Log, frames_seen: int) -> bool:
    """Whether a transaction ends after the frames SQLite sees, and a frame up to there is damaged."""
    last = _last_end(log)
    if last is None or last < frames_seen:
        return False
    computed = log.checksum if frames_seen == 0 else _stored_checksum(log, frames_seen - 1)
    for number in range(frames_seen, last + 1):
        at = log.offset(number)
        computed = _checksum(log.data[at : at + 8], log.order, computed)
        computed = _checksum(log.data[at + _FRAME.size : at + log.frame_bytes], log.order, computed)
        if computed != _stored_checksum(log, number):
            return True
    return False


def _last_end(log: _Log) -> int | None:
    """The last frame that ends a transaction of this log; later frames may belong to an earlier log."""
    count = (len(log.data) - _HEADER.size) // log.frame_bytes
    frames = np.ndarray((count, 6), ">u4", log.data, _HEADER.size, (log.frame_bytes, 4))
    is_end = (frames[:, 1] != 0) & (frames[:, 2] == log.salts[0]) & (frames[:, 3] == log.salts[1])
    ends = np.flatnonzero(is_end)
    return int(ends[-1]) if len(ends) else None


def _stored_checksum(log: _Log, number: int) -> tuple[int, int]:
    """The checksum that is stored in a frame."""
    *_, first, second = _FRAME.unpack_from(log.data, log.offset(number))
    return first, second


def _checksum(data: bytes, order: str, start: tuple[int, int] = (0, 0)) -> tuple[int, int]:
    """SQLite's checksum, which continues from that of the previous frame."""
    first, second = start
    words = iter(struct.unpack(f"{order}{len(data) // 4}I", data))
    for even, odd in zip(words, words, strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return first, second
