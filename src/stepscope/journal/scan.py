"""Scans the bytes of a journal for frames: rows of one key set in batches, each frame once."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from stepscope.journal import layout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

MAX_RUN_ROWS = 4096


class Scan:
    """One pass over bytes that start with a frame; stops at the end or at the first damaged frame."""

    def __init__(self, data: bytes, max_frames: int, taken: bytearray) -> None:
        """`taken` says for each sequence number whether its frame was read before, and is updated."""
        self._data, self._max_frames, self._taken = data, max_frames, taken
        self._view = memoryview(data)
        self._words = np.frombuffer(data, "<u8", len(data) // 8)
        self.at = 0
        self.is_cut_off = False
        self.count = 0
        self.highest = -1
        self.declared: list[tuple[int, bytes]] = []
        self.notes: list[tuple[int, int, bytes]] = []
        self.arrays: list[bytes] = []
        self._starts: dict[tuple[int, int], list[int]] = {}
        """The start of each row, by key set and length."""

    def run(self) -> None:
        """Reads frame after frame, rows of one key set in batches."""
        data, end = self._data, len(self._data)
        while self.at + layout.MIN_FRAME <= end:
            marker, units, kind_and_set = layout.HEAD.unpack_from(data, self.at)
            length = units * 8
            if marker != layout.MARKER or length < layout.MIN_FRAME:
                return
            if self.at + length > end:
                self.is_cut_off = True
                return
            if not self._is_intact(self.at, length):
                return
            kind, set_id = kind_and_set >> 28, kind_and_set & 0x0FFFFFFF
            if kind == layout.ROW and length >= layout.row_length(0):
                self._add_rows(set_id, length)
            else:
                self._add_other(kind, set_id, length)
        self.is_cut_off = self.at < end

    def rows(self) -> Sequence[tuple[tuple[int, int], NDArray[np.uint64]]]:
        """The rows by key set and width, each as an array of words: head, time, step, values, trailer."""
        rows = []
        for (set_id, length), starts in self._starts.items():
            first = np.array(starts, np.int64)[:, None] // 8
            width = (length - layout.row_length(0)) // 8
            rows.append(((set_id, width), self._words[first + np.arange(length // 8)]))
        return rows

    def _is_intact(self, start: int, length: int) -> bool:
        checksum, sequence = layout.TRAILER.unpack_from(self._data, start + length - 8)
        return bool(crc32(self._view[start : start + length - 8], sequence) == checksum)

    def _add_rows(self, set_id: int, length: int) -> None:
        """Adds the current row, which is intact, and all rows of its key set that follow directly."""
        starts = self._starts.setdefault((set_id, length), [])
        run = self._run_length(length)
        first = self.at
        for start in range(first, first + run * length, length):
            if start > first and not self._is_intact(start, length):
                break
            if self._is_new(start + length):
                starts.append(start)
            self.at = start + length

    def _run_length(self, length: int) -> int:
        head = self._data[self.at : self.at + layout.HEAD.size]
        if self._data[self.at + length : self.at + length + layout.HEAD.size] != head:
            return 1
        word, stride = self.at // 8, length // 8
        heads = self._words[word : word + stride * MAX_RUN_ROWS : stride]
        others = np.flatnonzero(heads != heads[0])
        same = int(others[0]) if len(others) else len(heads)
        return min(same, (len(self._data) - self.at) // length)

    def _add_other(self, kind: int, set_id: int, length: int) -> None:
        payload = self._data[self.at + layout.HEAD.size : self.at + length - layout.TRAILER.size]
        self.at += length
        if (kind in layout.CARRY_DATA or kind == layout.VOID) and not self._is_new(self.at):
            return
        if kind == layout.KEYS:
            self.declared.append((set_id, payload))
        elif kind == layout.ARRAY:
            self.arrays.append(payload)
        elif kind in layout.CARRY_DATA:
            self.notes.append((kind, set_id, payload))

    def _is_new(self, end: int) -> bool:
        """Counts the frame that ends here; False for a copy of one that was counted."""
        _, sequence = layout.TRAILER.unpack_from(self._data, end - layout.TRAILER.size)
        if sequence < self._max_frames:
            taken = self._taken
            if sequence >= len(taken):
                taken.extend(bytes(sequence + 1 - len(taken)))
            elif taken[sequence]:
                return False
            taken[sequence] = 1
            self.highest = max(self.highest, sequence)
        self.count += 1
        return True


def next_frame(data: bytes, start: int) -> int | None:
    """The start of the next complete and intact frame; None when there is none."""
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
