"""Follows a journal file, goes on after damage, and counts what was lost."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from stepscope.errors import JournalError
from stepscope.journal import layout

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

READ_BYTES = 8 << 20
LONGEST_RUN = 4096


@dataclass(frozen=True)
class Rows:
    """Rows of one key set in the order they were logged; times are monotonic ns plus the clock's base."""

    keys: tuple[str, ...]
    times: NDArray[np.int64]
    steps: NDArray[np.int64]
    values: NDArray[np.float64]


@dataclass
class Batch:
    """What one reading brought."""

    rows: list[Rows] = field(default_factory=list)
    notes: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    """Openings, events and ends: the kind of frame and its fields, `time` in ns since the epoch."""
    arrays: list[tuple[dict[str, Any], bytes]] = field(default_factory=list)
    offset: int = 0
    """Where the next reading begins."""
    lost: int = 0
    """Records of this file that could not be read, all readings together."""
    last: bool = True
    """Whether everything written so far has been read."""


@dataclass(frozen=True)
class Written:
    """How far a journal file had been written at some moment."""

    file_id: int
    end: int


def written_so_far(path: Path) -> Written:
    """Looks at a file without following it; an end of 0 when it is gone, not begun, or not ours to read."""
    try:
        with path.open("rb") as file:
            head = file.read(layout.HEADER_BYTES)
        size = path.stat().st_size
    except OSError:
        head, size = b"", 0
    if len(head) < layout.HEADER_BYTES:
        return Written(0, 0)
    _, committed, _, version, _, _, _, file_id, *_ = layout.HEADER.unpack(head)
    if version > layout.VERSION:
        return Written(0, 0)
    return Written(file_id, min(committed, size) or size)


class JournalReader:
    """Reads one journal file, from the start or from an offset an earlier reader had reached."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        head = os.pread(self._descriptor, layout.HEADER_BYTES, 0)
        head += bytes(layout.HEADER_BYTES - len(head))
        magic, _, _, version, _, _, _, self.file_id, self._clock_base_ns, _ = layout.HEADER.unpack(head)
        if magic == layout.MAGIC and version > layout.VERSION:
            os.close(self._descriptor)
            raise JournalError(
                f"{path} has version {version}, this stepscope reads up to {layout.VERSION}. "
                "Upgrade with: pip install -U stepscope"
            )
        self._intact_header = magic == layout.MAGIC
        self.begun = head != bytes(layout.HEADER_BYTES)
        """Whether the writer has come to writing the header."""
        # Offsets are kept by this id; a header lost with the power still needs one of its own.
        self.file_id = self.file_id or crc32(path.name.encode())
        self._sets: dict[int, tuple[str, ...]] = {}
        self._orphans: dict[int, list[NDArray[np.uint64]]] = {}
        self._seen = 0
        self._highest = -1
        self._suspect: int | None = None
        self.offset = layout.HEADER_BYTES
        self._catch_up(offset)

    def close(self) -> None:
        """Lets go of the file."""
        os.close(self._descriptor)

    def closed_by_writer(self) -> bool:
        """Whether the writer said that nothing more will come."""
        return os.pread(self._descriptor, 1, layout.CLOSED_AT) == b"\x01"

    def grows_by_size(self) -> bool:
        """Whether the file is appended to with write(), so that only the next file shows it is done."""
        return os.pread(self._descriptor, 8, layout.COMMITTED.start) == bytes(8)

    def sync(self) -> None:
        """Asks the disk to keep what was written so far; raises OSError when it cannot."""
        os.fdatasync(self._descriptor)

    def request_retirement(self) -> None:
        """Asks the writer to go on in a new file."""
        self._mark(layout.RETIRE_AT)

    def mark_stored(self) -> None:
        """Tells the writer, which may still have the file open, that the store has all of it."""
        with contextlib.suppress(OSError):
            self._mark(layout.STORED_AT)

    def _mark(self, at: int) -> None:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.pwrite(descriptor, b"\x01", at)
        finally:
            os.close(descriptor)

    def read(self, *, final: bool = False) -> Batch:
        """What has come since the last reading; `final` when the writer is gone or done with the file."""
        end, count = self._written(final=final)
        stop = min(end, self.offset + READ_BYTES)
        data = os.pread(self._descriptor, max(stop - self.offset, 0), self.offset)
        batch = Batch()
        at = self._decode(data, batch, final=final, complete=stop == end)
        self.offset += at
        batch.offset = self.offset
        batch.last = self.offset >= end or stop == end
        known = max(self._highest + 1, count if batch.last else 0)
        nameless = sum(len(rows) for orphans in self._orphans.values() for rows in orphans)
        batch.lost = max(known - self._seen - self._taken_in_vain(known), 0) + nameless
        return batch

    def _taken_in_vain(self, known: int) -> int:
        """How many numbers below the highest no frame was ever written for."""
        told = int.from_bytes(os.pread(self._descriptor, 8, layout.VAIN.start), "little")
        return told if self._intact_header and told < known else 0

    def _written(self, *, final: bool) -> tuple[int, int]:
        """How far the file goes, and how many records the writer had counted by then."""
        size = os.fstat(self._descriptor).st_size
        head = os.pread(self._descriptor, 16, layout.COMMITTED.start)
        committed = int.from_bytes(head[:8], "little")
        count = int.from_bytes(head[8:], "little")
        if not self._intact_header or count > committed // layout.MIN_FRAME:
            count = 0
        if final or committed == 0 or not self._intact_header:
            return size, count
        return min(committed, size), count

    def _catch_up(self, offset: int) -> None:
        """Learns key sets and numbering of what an earlier reader has already handed on."""
        while self.offset < offset:
            before = self.offset
            stop = min(offset, before + READ_BYTES)
            data = os.pread(self._descriptor, stop - before, before)
            self.offset += self._decode(data, Batch(), final=True, complete=stop == offset)
            if self.offset == before:
                break
        self.offset = max(self.offset, offset)
        self._orphans.clear()

    def _decode(self, data: bytes, batch: Batch, *, final: bool, complete: bool) -> int:
        """Decodes frames and skips damage; returns how many bytes are done with.

        `complete` says that nothing lies behind these bytes, `final` that nothing ever will.
        """
        done = 0
        while True:
            scan = _Scan(data[done:] if done else data)
            scan.run()
            self._take(scan, batch)
            done += scan.at
            if done == len(data) or (final and complete and not data[done:].strip(b"\0")):
                return len(data)
            if scan.cut_off and not complete:
                return done
            if not final and self._suspect != self.offset + done:
                # Another processor may show the length before the bytes: look again before judging.
                self._suspect = self.offset + done
                return done
            skipped = _next_frame(data, done + 1)
            if skipped is not None:
                done = skipped
            elif complete:
                return len(data) if final else done
            else:
                return max(done, len(data) - layout.MAX_FRAME)

    def _take(self, scan: _Scan, batch: Batch) -> None:
        for set_id, names in scan.declared:
            self._sets[set_id] = names
        self._seen += scan.seen
        self._highest = max(self._highest, scan.highest)
        for set_id, rows in scan.rows():
            self._orphans.setdefault(set_id, []).append(rows)
        for set_id in [known for known in self._orphans if known in self._sets]:
            for rows in self._orphans.pop(set_id):
                batch.rows.append(self._named(self._sets[set_id], rows))
        for kind, payload in scan.notes:
            fields = json.loads(payload)
            fields["time"] += self._clock_base_ns
            batch.notes.append((kind, fields))
        for payload in scan.arrays:
            fields, raw = layout.split_array(payload)
            fields["time"] += self._clock_base_ns
            batch.arrays.append((fields, raw))

    def _named(self, keys: tuple[str, ...], rows: NDArray[np.uint64]) -> Rows:
        times = rows[:, 1].view(np.int64) + self._clock_base_ns
        return Rows(keys, times, rows[:, 2].view(np.int64), rows[:, 3:-1].view(np.float64))


class _Scan:
    """One pass over bytes that begin with a frame; stops at the end or at the first bad frame."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._view = memoryview(data)
        self._words = np.frombuffer(data, "<u8", len(data) // 8)
        self.at = 0
        self.cut_off = False
        self.seen = 0
        self.highest = -1
        self.declared: list[tuple[int, tuple[str, ...]]] = []
        self.notes: list[tuple[int, bytes]] = []
        self.arrays: list[bytes] = []
        self._starts: dict[int, list[int]] = {}
        self._lengths: dict[int, int] = {}

    def run(self) -> None:
        """Takes frame after frame, rows of one key set many at a time."""
        data, end = self._data, len(self._data)
        while self.at + layout.MIN_FRAME <= end:
            marker, units, kind_and_set = layout.HEAD.unpack_from(data, self.at)
            length = units * 8
            if marker != layout.MARKER or length < layout.MIN_FRAME:
                return
            if self.at + length > end:
                self.cut_off = True
                return
            if not self._checks_out(self.at, length):
                return
            kind, set_id = kind_and_set >> 28, kind_and_set & 0x0FFFFFFF
            if kind == layout.ROW:
                self._take_rows(set_id, length)
            else:
                self._take_other(kind, set_id, length)
        self.cut_off = self.at < end

    def rows(self) -> Sequence[tuple[int, NDArray[np.uint64]]]:
        """The rows by key set, each as an array of words: head, time, step, values, trailer."""
        found = []
        for set_id, starts in self._starts.items():
            first = np.array(starts, np.int64)[:, None] // 8
            found.append((set_id, self._words[first + np.arange(self._lengths[set_id] // 8)]))
        return found

    def _checks_out(self, start: int, length: int) -> bool:
        checksum, sequence = layout.TRAILER.unpack_from(self._data, start + length - 8)
        return bool(crc32(self._view[start : start + length - 8], sequence) == checksum)

    def _take_rows(self, set_id: int, length: int) -> None:
        """Takes the row at hand and every row of the same key set that follows on without a break."""
        self._lengths[set_id] = length
        starts = self._starts.setdefault(set_id, [])
        run = self._run_length(length)
        for start in range(self.at, self.at + run * length, length):
            if not self._checks_out(start, length):
                break
            starts.append(start)
            self._count(start + length)
            self.at = start + length

    def _run_length(self, length: int) -> int:
        head = self._data[self.at : self.at + layout.HEAD.size]
        if self._data[self.at + length : self.at + length + layout.HEAD.size] != head:
            return 1
        word, stride = self.at // 8, length // 8
        heads = self._words[word : word + stride * LONGEST_RUN : stride]
        others = np.flatnonzero(heads != heads[0])
        same = int(others[0]) if len(others) else len(heads)
        return min(same, (len(self._data) - self.at) // length)

    def _take_other(self, kind: int, set_id: int, length: int) -> None:
        payload = self._data[self.at + layout.HEAD.size : self.at + length - layout.TRAILER.size]
        self.at += length
        if kind == layout.KEYS:
            self.declared.append((set_id, tuple(json.loads(payload))))
        elif kind == layout.ARRAY:
            self.arrays.append(payload)
        elif kind in layout.CARRY_DATA:
            self.notes.append((kind, payload))
        if kind in layout.CARRY_DATA or kind == layout.VOID:
            self._count(self.at)

    def _count(self, end: int) -> None:
        _, sequence = layout.TRAILER.unpack_from(self._data, end - layout.TRAILER.size)
        self.seen += 1
        self.highest = max(self.highest, sequence)


def _next_frame(data: bytes, start: int) -> int | None:
    """Where the next whole and sound frame begins; None when there is none."""
    view = memoryview(data)
    at = data.find(layout.MARKER_BYTES, start)
    while at >= 0:
        if at + layout.MIN_FRAME <= len(data):
            _, units, _ = layout.HEAD.unpack_from(data, at)
            stop = at + units * 8 - layout.TRAILER.size
            if units * 8 >= layout.MIN_FRAME and stop + layout.TRAILER.size <= len(data):
                checksum, sequence = layout.TRAILER.unpack_from(data, stop)
                if crc32(view[at:stop], sequence) == checksum:
                    return at
        at = data.find(layout.MARKER_BYTES, at + 1)
    return None
