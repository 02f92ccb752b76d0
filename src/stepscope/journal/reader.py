"""Follows a journal file, continues after damage, and counts what was lost."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from stepscope.descriptors import hold, open_above_streams
from stepscope.errors import JournalError
from stepscope.journal import layout, records
from stepscope.journal.folder import header_of, open_file, opening_of
from stepscope.journal.records import BadRecordError
from stepscope.journal.scan import Scan, next_frame

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

READ_BYTES = 1 << 20
"""The most that is read at once: more is stored in several transactions, each of which shows progress."""
MAX_EXTRA_NUMBERS = 1024
"""Sequence numbers beyond its frames that a file may have: threads took them when it was full."""
MAX_REPORTED = 5
"""Records that could not be stored and are reported one by one; further ones are only counted."""


@dataclass(frozen=True)
class Rows:
    """Rows of one key set in the order they were logged; times are monotonic ns plus the clock's base."""

    keys: tuple[str, ...]
    times: NDArray[np.int64]
    steps: NDArray[np.int64]
    values: NDArray[np.float64]


@dataclass
class Batch:
    """What one call of `read` returned."""

    rows: list[Rows] = field(default_factory=list)
    notes: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    """Openings, events and ends: the kind of frame and its checked fields."""
    arrays: list[tuple[dict[str, Any], bytes]] = field(default_factory=list)
    offset: int = 0
    """Where the next call continues."""
    lost: int = 0
    """Records of this file that could not be read or stored, in all calls together."""
    refused: list[str] = field(default_factory=list)
    """Why the first intact records that could not be stored were refused."""
    last: bool = True
    """Whether everything written so far has been read."""


@dataclass(frozen=True)
class Written:
    """How far a journal file was written at some time."""

    file_id: int
    end: int


def written_so_far(path: Path) -> Written:
    """How far a file is written; an end of 0 when it is gone, has no header, or may not be read."""
    head, size = header_of(path)
    if len(head) < layout.HEADER_BYTES:
        return Written(0, 0)
    _, committed, _, version, _, _, _, file_id, *_ = layout.HEADER.unpack(head)
    if version > layout.VERSION:
        return Written(0, 0)
    return Written(file_id, min(committed, size) or size)


class JournalReader:
    """Reads one journal file, from the start or from the offset of an earlier reader."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.path = path
        self._held = hold(open_file(path))
        self._descriptor = self._held.number
        try:
            self._begin(offset)
        except BaseException:
            self._held.close()
            raise

    def _begin(self, offset: int) -> None:
        """Reads the header, and restores the state of an earlier reader at its offset."""
        head = os.pread(self._descriptor, layout.HEADER_BYTES, 0)
        is_whole = len(head) == layout.HEADER_BYTES
        head += bytes(layout.HEADER_BYTES - len(head))
        fields = layout.HEADER.unpack(head)
        magic, version, self.file_id, self._clock_base_ns = fields[0], fields[3], fields[7], fields[8]
        self._intact_header = magic == layout.MAGIC and fields[10] in (0, layout.header_checksum(fields))
        if self._intact_header and version > layout.VERSION:
            raise JournalError(
                f"{self.path} has version {version}, this stepscope reads up to {layout.VERSION}. "
                "Upgrade with: pip install -U stepscope"
            )
        self.begun = is_whole and head != bytes(layout.HEADER_BYTES)
        """Whether the header was written, and is still there."""
        if not self._intact_header:
            self._recover_header()
        self._sets: dict[int, tuple[str, ...]] = {}
        self._unnamed_rows: dict[tuple[int, int], list[NDArray[np.uint64]]] = {}
        """Rows whose key names are not known yet, by key set and width."""
        self._refused = 0
        self._taken = bytearray()
        """For each sequence number, whether its frame was read: a second one is a copy."""
        self._count = 0
        self._highest = -1
        self._suspect: int | None = None
        self.offset = layout.HEADER_BYTES
        self._catch_up(offset)

    def _recover_header(self) -> None:
        """Replaces the fields of a damaged header."""
        # The store keeps offsets by this id.
        self.file_id = crc32(os.fsencode(self.path.name))
        clock_base_ns = (opening_of(self.path) or {}).get(layout.CLOCK_BASE)
        if records.is_int64(clock_base_ns):
            self._clock_base_ns = clock_base_ns

    def close(self) -> None:
        """Closes the file."""
        self._held.close()

    def is_at(self, path: Path) -> bool:
        """Whether this file is the one at that path."""
        try:
            status, own = path.lstat(), os.fstat(self._descriptor)
        except FileNotFoundError:
            return False
        return (status.st_dev, status.st_ino) == (own.st_dev, own.st_ino)

    def closed_by_writer(self) -> bool:
        """Whether the writer has marked the file as complete."""
        return os.pread(self._descriptor, 1, layout.CLOSED_AT) == b"\x01"

    def grows_by_size(self) -> bool:
        """Whether the file grows with write(), so that only the next file shows that it is complete."""
        return os.pread(self._descriptor, 8, layout.COMMITTED.start) == bytes(8)

    def sync(self) -> None:
        """Syncs what was written so far to disk; raises OSError when that fails."""
        os.fdatasync(self._descriptor)

    def request_retirement(self) -> None:
        """Asks the writer to continue in a new file."""
        self._mark(layout.RETIRE_AT)

    def mark_stored(self) -> None:
        """Marks the file as stored for the writer, which may still have it open."""
        with contextlib.suppress(OSError):
            self._mark(layout.STORED_AT)

    def mark_stored_so_far(self) -> None:
        """Marks how far the file is stored, for a writer that waits: storing all of it may take long."""
        with contextlib.suppress(OSError):
            self._mark(layout.STORED_SO_FAR.start, (self.offset // 8).to_bytes(4, "little"))

    def _mark(self, at: int, mark: bytes = b"\x01") -> None:
        descriptor = open_above_streams(self.path, os.O_WRONLY)
        try:
            os.pwrite(descriptor, mark, at)
        finally:
            os.close(descriptor)

    def read(self, *, final: bool = False) -> Batch:
        """Reads what was written since the last call; `final` when the writer has closed it or ended."""
        end, committed, count = self._written(final=final)
        stop = min(end, self.offset + READ_BYTES)
        if 0 < committed <= stop:
            stop = end  # what is behind it is unused
        data = os.pread(self._descriptor, max(stop - self.offset, 0), self.offset)
        batch = Batch()
        if final and end < layout.HEADER_BYTES and not self._refused:
            self._refuse(f"{self.path.name} is cut off after {end} bytes", batch)
        at = self._decode(data, batch, final=final, complete=stop == end)
        self.offset += at
        batch.offset = self.offset
        batch.last = self.offset >= end or stop == end
        known = max(self._highest + 1, count if batch.last else 0)
        unnamed = sum(len(rows) for pieces in self._unnamed_rows.values() for rows in pieces)
        batch.lost = max(known - self._count - self._unused_numbers(known), 0) + unnamed + self._refused
        return batch

    def _unused_numbers(self, known: int) -> int:
        """How many numbers below the highest have no frame."""
        unused = int.from_bytes(os.pread(self._descriptor, 8, layout.UNUSED_NUMBERS.start), "little")
        return unused if self._intact_header and unused < known else 0

    def _written(self, *, final: bool) -> tuple[int, int, int]:
        """How far to read, and the length (0 where unknown) and number of records the writer has counted."""
        size = os.fstat(self._descriptor).st_size
        head = os.pread(self._descriptor, 16, layout.COMMITTED.start)
        committed = int.from_bytes(head[:8], "little")
        count = int.from_bytes(head[8:], "little")
        if not self._intact_header or count > (committed or size) // layout.MIN_FRAME:
            count = 0
        if final or committed == 0 or not self._intact_header:
            return size, committed if self._intact_header else 0, count
        return min(committed, size), committed, count

    def _catch_up(self, offset: int) -> None:
        """Restores key sets and numbering from what an earlier reader has already read."""
        while self.offset < offset:
            before = self.offset
            stop = min(offset, before + READ_BYTES)
            data = os.pread(self._descriptor, stop - before, before)
            self.offset += self._decode(data, Batch(), final=True, complete=stop == offset)
            if self.offset == before:
                break
        self.offset = max(self.offset, offset)

    def _decode(self, data: bytes, batch: Batch, *, final: bool, complete: bool) -> int:
        """Decodes frames and skips damage; returns how many bytes are done.

        `complete` says that the data reaches the end of what is written, `final` that nothing will follow.
        """
        done = 0
        while True:
            scan = Scan(data[done:] if done else data, self._max_frames(), self._taken)
            scan.run()
            self._add_scan(scan, batch)
            done += scan.at
            if done == len(data) or (final and complete and not data[done:].strip(b"\0")):
                return len(data)
            if scan.is_cut_off and not complete:
                return done
            if not final and self._suspect != self.offset + done:
                # On some processors the length is visible before the bytes: retry before calling it damage.
                self._suspect = self.offset + done
                return done
            skipped = next_frame(data, done + 1)
            if skipped is not None:
                done = skipped
            elif complete:
                return len(data) if final else done
            else:
                return max(done, len(data) - layout.MAX_FRAME)

    def _max_frames(self) -> int:
        """The most frames the file can contain; a higher sequence number is damage."""
        return os.fstat(self._descriptor).st_size // layout.MIN_FRAME + MAX_EXTRA_NUMBERS

    def _add_scan(self, scan: Scan, batch: Batch) -> None:
        for set_id, payload in scan.declared:
            self._declare(set_id, payload, batch)
        self._count += scan.count
        self._highest = max(self._highest, scan.highest)
        for key, rows in scan.rows():
            self._unnamed_rows.setdefault(key, []).append(rows)
        self._add_named_rows(batch)
        for kind, origin, payload in scan.notes:
            try:
                batch.notes.append((kind, self._read_note(kind, origin, payload)))
            except BadRecordError as error:
                self._refuse(str(error), batch)
        for payload in scan.arrays:
            try:
                batch.arrays.append(records.read_array(payload, self._clock_base_ns))
            except BadRecordError as error:
                self._refuse(str(error), batch)

    def _add_named_rows(self, batch: Batch) -> None:
        """Adds the rows whose key names are known to the batch."""
        for set_id, width in [key for key in self._unnamed_rows if key[0] in self._sets]:
            pieces = self._unnamed_rows.pop((set_id, width))
            keys = self._sets[set_id]
            if len(keys) == width:
                batch.rows += [self._to_rows(keys, rows) for rows in pieces]
            else:
                reason = f"a row has {width} values for {len(keys)} metrics"
                self._refuse(reason, batch, sum(map(len, pieces)))

    def _declare(self, set_id: int, payload: bytes, batch: Batch) -> None:
        """Adds the names of a key set; rows whose names cannot be read stay unnamed, and are counted."""
        try:
            names = records.read_keys(payload)
        except BadRecordError as error:
            self._refuse(str(error), batch, 0)
            return
        # Every set is declared several times, identically: other names under its number are an error.
        if self._sets.setdefault(set_id, names) != names:
            self._refuse(f"key set {set_id} was declared again with other names", batch, 0)

    def _read_note(self, kind: int, origin: int, payload: bytes) -> dict[str, Any]:
        if kind == layout.OPEN:
            return records.read_opening(payload, self._clock_base_ns)
        if kind == layout.END:
            return records.read_end(payload, self._clock_base_ns)
        if kind == layout.ROW:
            raise BadRecordError("a row is too short for a time and a step")
        return records.read_event(payload, self._clock_base_ns, origin)

    def _refuse(self, reason: str, batch: Batch, count: int = 1) -> None:
        self._refused += count
        if len(batch.refused) < MAX_REPORTED:
            batch.refused.append(reason)

    def _to_rows(self, keys: tuple[str, ...], rows: NDArray[np.uint64]) -> Rows:
        times = rows[:, 1].view(np.int64) + np.int64(self._clock_base_ns)
        return Rows(keys, times, rows[:, 2].view(np.int64), rows[:, 3:-1].view(np.float64))
