"""The bytes of one journal file: mapped, appended with write(), or in memory.

All append a frame with ``write``, one call into C that the interpreter lock makes atomic, so threads and
signal handlers may write at any time without a lock. When there is no room left, or the segment is sealed,
``write`` raises ValueError and the writer continues in the next one. A sealed segment is not closed but
dropped: a thread may still be between its write and its commit.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import threading
from typing import TYPE_CHECKING, Protocol

from stepscope.descriptors import hold, map_file, open_above_streams
from stepscope.journal import layout
from stepscope.journal.held_file import HeldFile, trimmed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from stepscope.descriptors import HeldDescriptor

    KeySet = tuple[Callable[..., bytes], int]
    """How to pack a row of one key set: the packer and the head word."""


class Segment(Protocol):
    """The interface of a journal file for the writer."""

    file: HeldFile | None
    size: int
    sets: dict[tuple[object, ...], KeySet]
    names: bytearray
    """Declarations of key sets, to be repeated at the end of the file."""
    next_sequence: Callable[[], int]
    next_set_id: Callable[[], int]
    committed: memoryview

    def write(self, data: bytes, /) -> object:
        """Appends all bytes, or raises ValueError (no room) or OSError."""

    def tell(self) -> int:
        """The position of the next frame."""

    def seal(self) -> None:
        """Seals the segment: every later write raises ValueError."""

    def frames(self) -> bytes:
        """Every frame of a sealed segment."""

    def count_unused(self, numbers: int = 1) -> None:
        """Counts sequence numbers that were taken and have no frame."""

    def asked_to_retire(self) -> bool:
        """Whether the agent could not sync this file and asks for a new one."""


def header(clock_base_ns: int, file_id: int, committed: int = layout.HEADER_BYTES) -> bytes:
    """A new header; with a committed length of 0 the file's size is used."""
    fields = (layout.MAGIC, committed, 0, layout.VERSION, 0, 0, 0, file_id, clock_base_ns, 0)
    return layout.HEADER.pack(*fields, layout.header_checksum(fields))


def _new_id() -> int:
    return int.from_bytes(os.urandom(8), "little") >> 1


_abandoned: list[mmap.mmap] = []
"""Mappings that are never freed: that would close their descriptor, which other code uses by now."""


def fill(segment: Segment, frames: bytes) -> None:
    """Writes the frames of another segment into an empty one, which continues their numbering."""
    segment.write(frames)
    following, unused = layout.numbering(frames)
    segment.next_sequence = itertools.count(following).__next__
    if unused:
        segment.count_unused(unused)
    segment.committed[0], segment.committed[1] = segment.tell(), following


def hand_over(old: Segment, new: Segment) -> None:
    """Moves frames, key sets and numbering to an empty segment, and seals the old one."""
    old.seal()
    fill(new, old.frames())
    new.sets, new.names, new.next_set_id = old.sets, old.names, old.next_set_id


def repeat_at_end(segment: Segment, declaration: bytes) -> None:
    """Writes a declaration of names once more when the segment is sealed, if there is room for it."""
    if len(segment.names) + len(declaration) <= layout.NAMES_BYTES:
        segment.names += declaration


def write_last(segment: Segment, kind: int, payload: bytes) -> None:
    """Writes a frame that carries data, if there is room for it; does not start a new segment."""
    sequence = segment.next_sequence()
    with contextlib.suppress(ValueError, OSError):
        segment.write(layout.frame(kind, payload, sequence))
        segment.committed[0], segment.committed[1] = segment.tell(), sequence + 1


class MappedSegment:
    """A pre-allocated file mapped into memory, or anonymous memory where there is no file."""

    def __init__(
        self,
        mapping: mmap.mmap,
        clock_base_ns: int,
        file: HeldFile | None = None,
        held: HeldDescriptor | None = None,
    ) -> None:
        self._map = mapping
        self.file = file
        self._held = held
        mapping.write(header(clock_base_ns, _new_id() if file is None else file.file_id))
        self.size = len(mapping)
        self.sets: dict[tuple[object, ...], KeySet] = {}
        self.names = bytearray()
        self.write = mapping.write
        self.tell = mapping.tell
        self.next_sequence = itertools.count().__next__
        self.next_set_id = itertools.count(1).__next__
        self.committed = memoryview(mapping)[layout.COMMITTED].cast("Q")
        self._unused = memoryview(mapping)[layout.UNUSED_NUMBERS].cast("Q")

    @classmethod
    def create(cls, path: Path, size: int, clock_base_ns: int, file_id: int | None = None) -> MappedSegment:
        """Allocates the whole file first, so that a full disk is an error here and never later."""
        descriptor = hold(open_above_streams(path, os.O_RDWR | os.O_CREAT | os.O_EXCL))
        try:
            os.posix_fallocate(descriptor.number, 0, size + layout.NAMES_BYTES)
            mapping, held = map_file(descriptor.number, size)
        except OSError:
            descriptor.close()
            path.unlink(missing_ok=True)
            raise
        file = HeldFile(path, descriptor, os.O_RDWR, _new_id() if file_id is None else file_id)
        return cls(mapping, clock_base_ns, file, held)

    def seal(self) -> None:
        """Moves the position to the end: from here on no thread can write."""
        self._map.seek(0, os.SEEK_END)
        self._write_names()
        self._map[layout.CLOSED_AT] = 1

    def _write_names(self) -> None:
        """Writes them after the mapped part: a thread may still be writing its frame inside it."""
        descriptor = None if self.file is None else self.file.descriptor()
        if descriptor is not None:
            with contextlib.suppress(OSError):  # each name is in the file twice already
                os.pwrite(descriptor, self.names, self.size)

    def frames(self) -> bytes:
        """Every frame of a sealed segment."""
        return trimmed(self._map[layout.HEADER_BYTES :])

    def count_unused(self, numbers: int = 1) -> None:
        """Counts sequence numbers that were taken and have no frame."""
        self._unused[0] += numbers

    def asked_to_retire(self) -> bool:
        """Whether the agent could not sync this file and asks for a new one."""
        return self._map[layout.RETIRE_AT] == 1

    def __del__(self) -> None:
        if self._held is not None and not self._held.is_own():
            _abandoned.append(self._map)


class MemorySegment(MappedSegment):
    """Frames that wait for a file; after the first refused one it takes no more: only the newest are lost."""

    def __init__(self, size: int, clock_base_ns: int) -> None:
        super().__init__(mmap.mmap(-1, size), clock_base_ns)
        self.voided = 0
        """How many of the frames replace one that was dropped."""


SEALED = 1 << 62
"""A position after the end of every segment."""


class AppendedSegment:
    """A file written with one write() a frame, for file systems where mapping is not safe."""

    def __init__(self, path: Path, size: int, clock_base_ns: int, file_id: int | None = None) -> None:
        flags = os.O_RDWR | os.O_APPEND
        self._held = hold(open_above_streams(path, flags | os.O_CREAT | os.O_EXCL))
        self._file = HeldFile(path, self._held, flags, _new_id() if file_id is None else file_id)
        self.file: HeldFile | None = self._file
        self.size = size
        self._used = 0
        self.sets: dict[tuple[object, ...], KeySet] = {}
        self.names = bytearray()
        self.next_sequence = itertools.count().__next__
        self.next_set_id = itertools.count(1).__next__
        self.committed = memoryview(bytearray(16)).cast("Q")
        self._numbered = 0
        self._highest = -1
        # Reentrant, because a signal handler may log while its thread writes. Nothing is written after
        # seal() returns: a reader deletes a closed file.
        self._lock = threading.RLock()
        try:
            self.write(header(clock_base_ns, self._file.file_id, committed=0))
        except OSError:
            path.unlink(missing_ok=True)
            raise

    def write(self, data: bytes) -> object:
        """Writes a frame; the reader skips one that a full disk cut off."""
        with self._lock:
            if self._used + len(data) > self.size:
                raise ValueError("the segment is full")
            written = os.write(self._held.number, data)
            self._used += written
            if written == len(data):
                self._count_frames(data)
        if written != len(data):
            raise OSError(f"only {written} of {len(data)} bytes were written")
        return written

    def tell(self) -> int:
        """The position of the next frame."""
        return self._used

    def seal(self) -> None:
        """Refuses further writes, and marks the file as complete in the header."""
        with self._lock:
            if self._used == SEALED:
                return
            self._used = SEALED
            if (descriptor := self._file.descriptor()) is not None:
                with contextlib.suppress(OSError):  # each name is in the file twice already
                    os.write(descriptor, self.names)
        # Numbers that threads have taken but not written by now have no frame here.
        count = self._highest + 1
        self._write_header(layout.COUNT_AT, count.to_bytes(8, "little"))
        self._write_header(layout.UNUSED_NUMBERS.start, (count - self._numbered).to_bytes(8, "little"))
        self._write_header(layout.CLOSED_AT, b"\x01")

    def count_unused(self, numbers: int = 1) -> None:
        """Does nothing: seal() counts the numbers without a frame."""

    def _count_frames(self, frames: bytes) -> None:
        """Counts the sequence numbers of written frames."""
        at = 0
        while frames[at : at + 2] == layout.MARKER_BYTES:
            _, units, _ = layout.HEAD.unpack_from(frames, at)
            at += units * 8
            _, sequence = layout.TRAILER.unpack_from(frames, at - layout.TRAILER.size)
            if sequence != layout.NO_SEQUENCE:
                self._numbered += 1
                self._highest = max(self._highest, sequence)

    def _write_header(self, at: int, data: bytes) -> None:
        """Writes into the header with a second descriptor: the other one can only append."""
        with contextlib.suppress(OSError):  # an incomplete header costs the reader time, but no record
            held = self._file.descriptor()
            if held is None:
                return
            descriptor = open_above_streams(f"/proc/self/fd/{held}", os.O_WRONLY)
            try:
                os.pwrite(descriptor, data, at)
            finally:
                os.close(descriptor)

    def frames(self) -> bytes:
        """Every frame of a sealed segment."""
        return self._file.frames()

    def asked_to_retire(self) -> bool:
        """Whether the agent could not sync this file and asks for a new one."""
        descriptor = self._file.descriptor()
        return descriptor is not None and os.pread(descriptor, 1, layout.RETIRE_AT) == b"\x01"
