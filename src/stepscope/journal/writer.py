"""Appends frames to a process's journal without locks or system calls."""

from __future__ import annotations

import contextlib
import threading
import time
from itertools import islice
from typing import TYPE_CHECKING, Any
from zlib import crc32

from stepscope.errors import JournalError, TooManyKeys
from stepscope.journal import layout
from stepscope.journal.packing import key_set, row_frames, unpacked_rows
from stepscope.journal.sealed_files import SealedFiles
from stepscope.journal.segment import MappedSegment, MemorySegment, hand_over, repeat_at_end, write_last

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from stepscope.journal.held_file import HeldFile, Whereabouts
    from stepscope.journal.segment import Segment
    from stepscope.journal.supply import SegmentSupply

MAX_KEY_SETS = 20_000
LOCK_S = 1.0

_pack_trailer = layout.TRAILER.pack


class JournalWriter:
    """The journal of one process: a series of files, of which the newest is being written.

    A frame survives the death of this process as soon as the call that appended it returns. While no file can
    be created, frames stay in memory up to the size of a segment; after that the newest are dropped and
    counted, and the gap is recorded when the journal continues.
    """

    def __init__(
        self,
        supply: SegmentSupply,
        opening: Mapping[str, Any],
        *,
        max_keys: int = 50_000,
        clock: Callable[[], int] = time.monotonic_ns,
        warn: Callable[[str], None] = lambda _: None,
        name_of: Callable[[object], str] = layout.clean,
    ) -> None:
        self.supply = supply
        self._name_of = name_of
        self._opening = {**opening, layout.CLOCK_BASE: supply.clock_base_ns}
        self._max_keys = max_keys
        self._known_keys: set[object] = set()
        self._clock = clock
        self._warn = warn
        self._lock = threading.RLock()  # a signal handler may log while its thread switches files
        self.dropped = 0
        self._noted_dropped = 0
        self.sealed = SealedFiles()
        self._is_closed = self._has_warned_late = False
        self._segment = supply.take()
        self._report_trouble()
        self.append_json(layout.OPEN, self._opening)

    def append_row(self, metrics: Mapping[Any, Any], step: int, at_ns: int | None = None) -> None:
        """Appends the values of a step, at the current or an earlier time of `time.monotonic_ns`.

        Raises what converting a value to float raises.
        """
        segment = self._segment
        values = metrics.values()  # raises for what is not a mapping, whose keys might be infinite
        try:
            pack, head = segment.sets[tuple(metrics)]
        except KeyError:
            self._append_first_row(metrics, step, at_ns)
            return
        row = pack(head, self._clock() if at_ns is None else at_ns, step, *values)
        try:
            sequence = segment.next_sequence()
            segment.write(row + _pack_trailer(crc32(row, sequence), sequence))
        except (ValueError, OSError):
            self._void(segment, sequence)
            if self._advance(segment):
                self.append_row(metrics, step, at_ns)
            return
        committed = segment.committed
        committed[0] = segment.tell()
        committed[1] = sequence + 1

    def append_rows(self, keys: tuple[str, ...], rows: bytes) -> None:
        """Appends packed rows of one key set in one write: each a time, a step, a float for each key."""
        segment = self._segment
        known, fields = segment.sets.get(keys), 2 + len(keys)
        count = len(rows) // (8 * fields)
        room = segment.size - segment.tell()
        # A file that grows with write() may take only some of the rows, and the rest would be written twice.
        is_mapped = isinstance(segment, MappedSegment)
        if known is None or not is_mapped or count * layout.row_length(len(keys)) > room:
            for at_ns, step, *values in unpacked_rows(rows, len(keys)):
                self.append_row(dict(zip(keys, values, strict=True)), step, at_ns)
            return
        sequences = list(islice(iter(segment.next_sequence, None), count))  # faster than a loop
        try:
            segment.write(row_frames(known[1], rows, fields, sequences))
        except (ValueError, OSError):  # another thread has used the space
            for sequence in sequences:
                self._void(segment, sequence)
            if self._advance(segment):
                self.append_rows(keys, rows)
            return
        committed = segment.committed
        committed[0] = segment.tell()
        committed[1] = sequences[-1] + 1

    def append_json(self, kind: int, fields: Mapping[str, Any]) -> None:
        """Appends the opening or the end record."""
        self._append_numbered(kind, layout.to_json({**fields, "time": self._clock()}))

    def append_event(self, kind: str, fields: Mapping[str, Any], step: int | None = None) -> None:
        """Appends an event of stepscope itself."""
        event = {**fields, "kind": kind, "time": self._clock()}
        if step is not None:
            event["step"] = step
        self._append_numbered(layout.EVENT, layout.to_json(event), layout.OF_STEPSCOPE)

    def append_user_event(self, kind: str, fields: Mapping[str, Any], step: int) -> None:
        """Appends a user's event; its fields may have any names."""
        event = {"time": self._clock(), "kind": kind, "step": step, "fields": fields}
        self._append_numbered(layout.EVENT, layout.to_json(event), layout.OF_USER)

    def append_array(self, fields: Mapping[str, Any], raw: bytes) -> None:
        """Appends an array, such as a histogram, with its description."""
        described = {**fields, "time": self._clock(), "bytes": len(raw)}
        self._append_numbered(layout.ARRAY, layout.array_payload(described, raw))

    def close(self, end: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """Ends the journal with an end record, or without one for None.

        Returns an end record that no file could take, with the number of records lost for the same reason.
        """
        with self._lock:
            self.supply.try_at_once()
            self.recover()
            dropped = self.dropped + self._records_in_memory()
            if end is not None:
                self.append_json(layout.END, {**end, "dropped": self.dropped})
            self._seal(self._segment)
            self.supply.give_up_prepared()
            self._is_closed = True
            if not isinstance(self._segment, MemorySegment):
                return None
            reason = f"The journal could not be written until the end: {self.supply.trouble}."
            self._warn(f"{reason} {dropped} records are lost.")
            return None if end is None else {**end, "dropped": dropped}

    def end_soon(self, end: Mapping[str, Any]) -> None:
        """Ends the journal of a process that is about to exit, even while another thread hangs in it."""
        if self._lock.acquire(timeout=LOCK_S):
            try:
                self.close(end)
            finally:
                self._lock.release()
        else:
            self.append_json(layout.END, {**end, "dropped": self.dropped})

    @contextlib.contextmanager
    def closed_for(self, end: Mapping[str, Any]) -> Iterator[None]:
        """Ends the journal, and continues in a new file if the block raises: an exec that failed."""
        is_locked = self._lock.acquire(timeout=LOCK_S)
        self.end_soon(end)
        try:
            yield
        except BaseException:
            self._is_closed = False
            self._start_next_segment()
            raise
        finally:
            if is_locked:
                self._lock.release()

    def position(self) -> tuple[int, int]:
        """A value that changes with every record."""
        return id(self._segment), self._segment.tell()

    def _records_in_memory(self) -> int:
        """How many records are only in memory, without the opening of the segment."""
        segment = self._segment
        if not isinstance(segment, MemorySegment):
            return 0
        return max(segment.committed[1] - segment.voided - 1, 0)

    def prepare(self) -> None:
        """Creates the next file in advance, so that the training thread does not have to."""
        with self._lock:
            in_file = not isinstance(self._segment, MemorySegment)
            if in_file and self._segment.tell() > self._segment.size // 2:
                self.supply.prepare()

    def recover(self) -> None:
        """Moves from memory to a file if one can be created, and leaves a file that cannot be synced."""
        with self._lock:
            if isinstance(self._segment, MemorySegment):
                self._leave_memory(self._segment)
            elif self._segment.asked_to_retire():
                self._warn("The journal could not be synced to disk; going on in a new file.")
                self._advance(self._segment)

    def whereabouts(self) -> Whereabouts:
        """Whether the files that may not be stored yet are where they were created."""
        with self._lock:
            self.sealed.forget_stored()
            state = self.sealed.whereabouts()
            if self._is_closed or state != "in place":
                return state
            file = self._segment.file
            return "in place" if file is None else file.whereabouts()

    def moved_to(self) -> Path | None:
        """The new path of the current file if it was moved; None if it was not."""
        file = self._segment.file
        return None if file is None else file.moved_to()

    def carry_over(self) -> int | None:
        """Copies deleted files into new ones; returns the number of records, or None while that fails."""
        with self._lock:
            self.supply.give_up_prepared()
            carried = self.sealed.carry_over(self._replace)
            if carried is None:
                return None
            old = self._segment
            if self._is_closed or old.file is None or old.file.whereabouts() == "in place":
                return carried
            new = self._replace(old.file, old.size, lambda new: hand_over(old, new))
            if new is None:
                return None
            self._segment = new
            return carried + new.committed[1]

    def leave_behind(self, end: Mapping[str, Any]) -> None:
        """Ends the files that were moved, and continues in a new one."""
        with self._lock:
            if self._is_closed:
                self.sealed.clear()
                return
            self.supply.give_up_prepared()
            old = self._segment
            if old.file is not None and old.file.whereabouts() == "in place":
                self.sealed.leave_behind(end)  # it was already created in the new folder
                return
            end_record = layout.to_json({"time": self._clock(), **end, "dropped": self.dropped})
            write_last(old, layout.END, end_record)  # if it does not fit, the reader sees that the file ended
            old.seal()
            self.sealed.clear()
            self._start_next_segment()

    @property
    def trouble(self) -> str | None:
        """Why frames are not written to a file; None when they are."""
        return self.supply.trouble

    @property
    def unsaved(self) -> int:
        """Records of a closed journal that are in no file, because none could be created."""
        if self.supply.trouble is None:
            return 0
        deleted = self.sealed.deleted_records()
        in_memory = self._segment.committed[1] if isinstance(self._segment, MemorySegment) else 0
        return deleted + in_memory + self.dropped - self._noted_dropped

    def _append_first_row(self, metrics: Mapping[Any, Any], step: int, at_ns: int | None) -> None:
        """Declares a key set in several places, so that damage in one cannot remove the names of all rows."""
        keys = tuple(metrics)
        self._check_key_limit(keys)
        segment = self._segment
        if len(segment.sets) >= MAX_KEY_SETS:
            segment.sets.clear()
        set_id = segment.next_set_id()
        names = layout.to_json([self._name_of(key) for key in keys])
        declaration = layout.frame(layout.KEYS, names, set_id=set_id)
        if not self._write(segment, declaration):
            if self._segment is not segment:
                self._append_first_row(metrics, step, at_ns)
            return
        segment.sets[keys] = key_set(metrics, set_id)
        repeat_at_end(segment, declaration)
        self.append_row(metrics, step, at_ns)
        if segment is self._segment:
            self._write(segment, layout.frame(layout.PAD, bytes(layout.PAD_BYTES)) + declaration)

    def _check_key_limit(self, keys: tuple[object, ...]) -> None:
        fresh = [key for key in keys if key not in self._known_keys]
        if len(self._known_keys) + len(fresh) > self._max_keys:
            raise TooManyKeys(self._max_keys, self._known_keys)
        self._known_keys.update(fresh)

    def _append_numbered(self, kind: int, payload: bytes, origin: int = layout.OF_UNKNOWN) -> None:
        segment = self._segment
        sequence = segment.next_sequence()
        if self._write(segment, layout.frame(kind, payload, sequence, origin)):
            segment.committed[1] = sequence + 1
        else:
            self._void(segment, sequence)
            if self._segment is not segment:
                self._append_numbered(kind, payload, origin)

    def _void(self, segment: Segment, sequence: int) -> None:
        """Marks a number as unused: a shorter frame of another thread may still fit."""
        try:
            segment.write(layout.frame(layout.VOID, b"", sequence))
        except (ValueError, OSError):
            with self._lock:
                # A thread with a higher number has filled or sealed it: this number would count as lost.
                if segment.committed[1] > sequence:
                    segment.count_unused()
            return
        segment.committed[0] = segment.tell()
        segment.committed[1] = sequence + 1
        if isinstance(segment, MemorySegment):
            segment.voided += 1

    def _write(self, segment: Segment, frames: bytes) -> bool:
        if len(frames) > segment.size - layout.HEADER_BYTES:
            raise JournalError(
                f"A record of {len(frames)} bytes does not fit into a journal of {segment.size} bytes. "
                "Log less of it, or raise recorder.segment_bytes."
            )
        try:
            segment.write(frames)
        except (ValueError, OSError):
            self._advance(segment)
            return False
        segment.committed[0] = segment.tell()
        return True

    def _advance(self, full: Segment) -> bool:
        """Continues in the next segment; returns False when there is none and the frame is dropped."""
        with self._lock:
            if full is not self._segment:
                return True  # another thread was here first
            if self._is_closed:
                if not self._has_warned_late:
                    self._warn("What is logged while the run is being stopped is not recorded.")
                self._has_warned_late = True
                return False
            self._seal(full)
            if isinstance(full, MemorySegment):
                if self._leave_memory(full):
                    return True
                self.dropped += 1
                return False
            self._start_next_segment()
            return True

    def _start_next_segment(self) -> None:
        self._segment = self.supply.take()
        self._report_trouble()
        self._repeat_opening()

    def _seal(self, segment: Segment) -> None:
        segment.seal()
        self.sealed.add(segment)

    def _replace(self, old: HeldFile, size: int, fill: Callable[[Segment], None]) -> Segment | None:
        was_reported = self.supply.trouble is not None
        new = self.supply.replace(old, size, fill)
        if new is None and not was_reported:
            self._report_trouble()
        return new

    def _leave_memory(self, memory: MemorySegment) -> bool:
        new = self.supply.make_file(at_least=memory.committed[0])
        if new is None:
            return False
        try:
            hand_over(memory, new)
        except OSError:
            return False
        self._segment = new
        missed = self.dropped - self._noted_dropped
        self._noted_dropped = self.dropped
        self._warn(f"The journal goes on in a file; {missed} records were dropped meanwhile.")
        if missed:
            self.append_event("gap", {"dropped": missed})
        return True

    def _report_trouble(self) -> None:
        if self.supply.trouble is not None:
            self._warn(
                f"The journal cannot be written: {self.supply.trouble}. Training goes on; records "
                f"are kept in memory up to {self._segment.size >> 20} MiB, then dropped and counted."
            )

    def _repeat_opening(self) -> None:
        """Writes the opening into every file: older files are deleted once they are stored."""
        sequence = self._segment.next_sequence()
        opening = {**self._opening, "time": self._clock(), layout.PREVIOUS: self.sealed.last_id}
        payload = layout.to_json(opening)
        if self._write(self._segment, layout.frame(layout.OPEN, payload, sequence)):
            self._segment.committed[1] = sequence + 1
