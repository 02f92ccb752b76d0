"""Follows the journal of one process, file after file, to its end."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any

from stepscope.agent.ingest.exit_notes import read_exit_note
from stepscope.agent.ingest.known_processes import placeholder_process, process_from_opening, stored_process
from stepscope.agent.liveness import ProcessLiveness, cause_of_death, stall_reason
from stepscope.errors import JournalError
from stepscope.exporters.base import Table
from stepscope.journal import layout
from stepscope.journal.folder import EXIT_NOTE_SUFFIX, number_of
from stepscope.journal.reader import MAX_REPORTED, JournalReader
from stepscope.journal.records import is_int64
from stepscope.schema.record import Event
from stepscope.schema.series import Source

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from stepscope.agent.ingest.feeds import Feeds
    from stepscope.agent.ingest.set_aside import SetAsideJournals
    from stepscope.journal.folder import JournalName
    from stepscope.journal.reader import Batch
    from stepscope.schema.run import Process
    from stepscope.store.base import Store

log = logging.getLogger("stepscope.agent")

SYNC_EVERY = 10
"""While the store has every record on disk, a journal is synced at every tenth call, to notice a bad disk."""


class Follower:
    """One recording process: its journal files, its description, whether it is alive."""

    def __init__(
        self,
        name: JournalName,
        folder: Path,
        store: Store,
        liveness_for: Callable[[Process], ProcessLiveness],
        feeds: Feeds,
        set_aside: SetAsideJournals,
    ) -> None:
        self._name = name
        self._exit_note_path = folder / f"{name.segment}-r{name.rank}-{name.pid}{EXIT_NOTE_SUFFIX}"
        self._store = store
        self._liveness_for = liveness_for
        self._feeds = feeds
        self._set_aside = set_aside
        self._readers: dict[Path, JournalReader] = {}
        self._lost: dict[Path, int] = {}
        self._stored_offsets: dict[Path, int] = {}
        self._synced: dict[Path, int] = {}
        """How far each file had been read when it was last synced."""
        self._sync_calls = name.pid  # so that not all processes sync in the same round
        self._batches: list[tuple[JournalReader, Batch]] = []
        self._finished_files: list[Path] = []
        """Files that have been read to their end; each is deleted once the store has all of it."""
        self._ids: set[int] = set()
        """Ids of the files that have been opened."""
        self._previous_ids: set[int] = set()
        """Ids of the files that later files name as their predecessors."""
        self._reported = 0
        """How many refused records have been reported."""
        self.files: list[Path] = []
        """The files of the last round."""
        self._is_dead = False
        self.process = stored_process(store, name) or placeholder_process(name)
        self._is_first_reader = self.is_unknown
        """Whether no file of it can have been stored and deleted by another agent or reader."""
        self._liveness = liveness_for(self.process)
        self.is_here = False
        """Whether the process runs on this host and can be sampled."""
        self._has_end = self.process.ended_ns is not None
        self.ended = False
        """Whether everything it will ever write is in the store."""
        self.caught_up = True
        """Whether all that was written by the last round has been read."""

    def read(self, files: list[Path]) -> bool:
        """Reads what has come; returns True when there is something to store."""
        self._batches, self._finished_files = [], []
        if files != self.files or len(files) != len(self._readers):
            for path in files:
                self._open(path)
            # A file that another process has deleted can still be read while it is open here.
            self.files = sorted({*files, *self._readers}, key=number_of)
        alive = self._liveness.is_alive()  # checked before reading: no record comes later
        self.is_here = alive is True
        self._is_dead = self._is_dead or alive is False
        self.caught_up = True
        settled_files = 0
        for path in self.files:
            if self._set_aside.is_waiting(path) and path not in self._readers:
                if not self._set_aside.is_permanent(path):
                    break
            elif not self._read_file(path):
                break
            settled_files += path in self._finished_files or self._set_aside.is_waiting(path)
        finished = self._is_dead or self._has_end
        self.ended = finished and settled_files == len(self.files)
        return self.ended or self._has_progress() or self._has_status_change()

    def _open(self, path: Path) -> None:
        """Opens a new file: it may be a copy that continues where a deleted one ended."""
        if path in self._readers or self._set_aside.is_waiting(path):
            return
        try:
            reader = self._reader(path)
        except FileNotFoundError:
            return
        except (OSError, JournalError) as error:
            self._set_aside.add(path, error)
            return
        for known, other in list(self._readers.items()):
            if reader is not None and other is not reader and other.file_id == reader.file_id:
                self._drop_reader(known)

    def _read_file(self, path: Path) -> bool:
        """Reads new records of one file; returns False when the files after it must wait for more of it."""
        try:
            reader = self._reader(path)
            if reader is None:
                return True
            final = self._is_final(reader, path, self.files)
            batch = reader.read(final=final)
        except FileNotFoundError:
            return True
        except (OSError, JournalError) as error:
            self._drop_reader(path)
            self._set_aside.add(path, error)
            return self._set_aside.is_permanent(path)
        self._batches.append((reader, batch))
        self._has_end |= any(kind == layout.END for kind, _ in batch.notes)
        self.caught_up = self.caught_up and batch.last
        if not (final and batch.last):
            # Later records are in the files after this one, which may have begun meanwhile.
            self.caught_up = self.caught_up and (final or not reader.closed_by_writer())
            self._set_aside.clear(path)
            return False
        self._finished_files.append(path)
        return True

    def store(self) -> int:
        """Stores what was read, within the store's transaction; returns the number of records."""
        records = 0
        for reader, batch in self._batches:
            records += self._store_batch(batch)
            self.process.lost += batch.lost - self._lost[reader.path]
            self._lost[reader.path] = batch.lost
            self._stored_offsets[reader.path] = batch.offset
            self._store.set_progress(reader.file_id, batch.offset, batch.lost)
        if records:
            self._liveness.add_records(records)
        if self.ended:
            self._count_missing_files()
        self._update_status()
        if not self.is_unknown or self._batches:
            self._store.put_process(self.process)
            self._feeds.add_process(self.process)
        if self.ended:
            self._store.seal(self._source())
        return records

    @property
    def is_unknown(self) -> bool:
        """Whether nothing it recorded has been read yet."""
        return self.process.started_ns == 0

    @property
    def has_unstored_end(self) -> bool:
        """Whether its end is not in the store yet, and can be determined from here."""
        is_open = not self.is_unknown and self.process.ended_ns is None
        return is_open and self._liveness.is_alive() is not None

    def mark_stored(self) -> None:
        """Marks in each file what the store has of it, for a writer that waits; call it after the commit."""
        for reader, batch in self._batches:
            if reader.path in self._finished_files and reader.is_at(reader.path):
                reader.mark_stored()
            elif not batch.last:
                reader.mark_stored_so_far()

    def delete_stored_files(self) -> list[int]:
        """Deletes files whose every record is in the store or counted as lost; returns their ids.

        Call it after the store's transaction has been committed.
        """
        deleted_ids = []
        for path in self._finished_files:
            reader = self._readers.get(path)
            if reader is None or self._stored_offsets[path] != reader.offset:
                continue
            try:
                if reader.is_at(path):
                    path.unlink(missing_ok=True)
                    # If another process has deleted the file, the writer may write a copy with the same id.
                    deleted_ids.append(reader.file_id)
                    self._set_aside.mark_stored(reader.file_id)
            except PermissionError as error:
                # The store has its records and its offset: a user with permission deletes the file.
                self._set_aside.add(path, error)
            except OSError as error:
                refusal = f"{path} is stored but cannot be deleted: {error.strerror}"
                self._set_aside.add(path, JournalError(refusal))
            else:
                self._set_aside.clear(path)
            self._drop_reader(path)
        self._finished_files = []
        if self.ended:
            with contextlib.suppress(OSError):
                self._exit_note_path.unlink(missing_ok=True)
        return deleted_ids

    def sync(self) -> None:
        """Syncs files that have grown; where that fails, the writer is asked to begin a new file."""
        self._sync_calls += 1
        is_due = not self.caught_up or self._sync_calls % SYNC_EVERY == 0
        for path, reader in self._readers.items():
            if self._synced.get(path) == reader.offset or not (is_due or path not in self._synced):
                continue
            try:
                reader.sync()
                self._synced[path] = reader.offset
            except OSError:
                with contextlib.suppress(OSError):  # deleted, or another user's
                    reader.request_retirement()

    def close(self) -> None:
        """Closes the files without deleting them, and the handle of the process."""
        self._liveness.close()
        for path in list(self._readers):
            self._drop_reader(path)

    def _drop_reader(self, path: Path) -> None:
        reader = self._readers.pop(path, None)
        if reader is not None:
            reader.close()

    def _reader(self, path: Path) -> JournalReader | None:
        """Opens a file at the stored offset; None for one that has no header yet."""
        known = self._readers.get(path)
        if known is None:
            known = JournalReader(path)
            if not (known.begun or self._is_dead):
                known.close()
                return None
            try:
                self._set_aside.claim(known.file_id, path)
            except JournalError:
                known.close()
                raise
            self._ids.add(known.file_id)
            offset, self._lost[path] = self._store.progress(known.file_id)
            if offset:
                known.close()
                known = JournalReader(path, offset)
            self._readers[path] = known
            self._stored_offsets[path] = known.offset
        return known

    def _is_final(self, reader: JournalReader, path: Path, files: list[Path]) -> bool:
        followed_by_another = path != files[-1] and reader.grows_by_size()
        return self._is_dead or followed_by_another or reader.closed_by_writer()

    def _has_progress(self) -> bool:
        """Whether a reader advanced, even without rows: waiting readers compare offsets."""
        return any(
            batch.offset > self._stored_offsets[reader.path] or batch.lost != self._lost[reader.path]
            for reader, batch in self._batches
        )

    def _has_status_change(self) -> bool:
        is_stalled = self._stalled_for() is not None
        return is_stalled != (self.process.status == "stalled") and not self._has_end

    def _store_batch(self, batch: Batch) -> int:
        for kind, fields in batch.notes:
            self._store_note(kind, fields)
        self._report_refused(batch)
        source = self._source()
        records = len(batch.notes) + len(batch.arrays)
        for rows in batch.rows:
            self._ensure_process(int(rows.times[0]))
            self._store.append(source, rows.keys, rows.steps, rows.times, rows.values)
            self._feeds.add_rows(Table(source, rows.keys, rows.steps, rows.times, rows.values))
            records += len(rows.steps)
            self.process.last_ns = max(self.process.last_ns, int(rows.times[-1]))
        for fields, raw in batch.arrays:
            self._ensure_process(fields["time"])
            self._store.put_array(*self._labels()[:3], fields, raw)
            self._feeds.add_array(self._labels()[:3], fields, raw)
        return records

    def _count_missing_files(self) -> None:
        """Counts each file that a later one names and nobody has opened as a loss, of at least one record."""
        missing = self._previous_ids - self._ids
        if missing and self._is_first_reader and not any(map(self._set_aside.is_waiting, self.files)):
            self.process.lost += len(missing)
            reason = f"{len(missing)} journal files were deleted before they were stored"
            self._put_event("record_refused", self.process.last_ns, None, {"reason": reason})
        self._previous_ids.clear()

    def _report_refused(self, batch: Batch) -> None:
        """Reports why the first refused records could not be stored; all are counted."""
        for reason in batch.refused[: MAX_REPORTED - self._reported]:
            self._reported += 1
            log.warning("Not stored: a record of process %s: %s", self._name.pid, reason)
            if not self.is_unknown:
                self._put_event("record_refused", self.process.last_ns, None, {"reason": reason})

    def _store_note(self, kind: int, note: dict[str, Any]) -> None:
        time_ns = note["time"]
        self.process.last_ns = max(self.process.last_ns, time_ns)
        if kind == layout.OPEN:
            self._store_opening(note)
        elif kind == layout.END:
            self._set_end(note)
        else:
            fields = note["fields"]
            if note["kind"] == "gap" and not note["user"] and is_int64(fields.get("dropped")):
                self.process.dropped += fields["dropped"]
            self._ensure_process(time_ns)
            self._put_event(note["kind"], time_ns, note["step"], fields, by_user=note["user"])

    def _set_end(self, end: dict[str, Any]) -> None:
        self.process.status = end["status"]
        self.process.reason = end["reason"]
        self.process.exit_code = end.get("exit_code")
        self.process.dropped = end["dropped"]
        self.process.ended_ns = end["time"]
        self._has_end = True

    def _put_event(
        self, kind: str, time_ns: int, step: int | None, fields: dict[str, Any], *, by_user: bool = False
    ) -> None:
        run_id, segment, rank, _ = self._labels()
        event = Event(kind, time_ns, step, rank, segment, fields, by_user)
        self._store.put_event(run_id, event)
        self._feeds.add_event(run_id, event)

    def _store_opening(self, opening: dict[str, Any]) -> None:
        before = self.process
        if is_int64(opening.get(layout.PREVIOUS)):
            self._previous_ids.add(opening[layout.PREVIOUS])
        self.process = process_from_opening(self._name, before, opening)
        if before.ended_ns is not None and self.process.ended_ns is None:
            self._has_end = False
        self._store.put_process(self.process)
        if not before.facts:
            self._liveness.close()
            self._liveness = self._liveness_for(self.process)

    def _ensure_process(self, first_ns: int) -> None:
        """Starts the process without its opening, where that was damaged: only the run's id is known."""
        if self.process.started_ns == 0:
            self.process.started_ns = first_ns
            self._store.put_process(self.process)

    def _update_status(self) -> None:
        """Sets the status of the process, unless it has recorded its own end."""
        if self._has_end:
            return
        if self.ended:
            self._set_cause_of_death()
            return
        stalled_s = self._stalled_for()
        self.process.status = "running" if stalled_s is None else "stalled"
        self.process.reason = "" if stalled_s is None else stall_reason(self.process)

    def _stalled_for(self) -> float | None:
        """Seconds without a record if stalled, else None; a process that only samples never stalls."""
        return None if self.process.role == "machine" else self._liveness.stalled_for()

    def _set_cause_of_death(self) -> None:
        process = self.process
        process.ended_ns = process.last_ns
        note = read_exit_note(self._exit_note_path)
        if note.end is not None:
            self._set_end(note.end)
            return
        if process.role == "worker":
            process.status, process.reason = "finished", ""
            return
        status, process.reason = cause_of_death(process, note, had_oom_kill=self._liveness.had_oom_kill())
        process.status = "failed" if status == "failed" else "crashed"

    def _source(self) -> Source:
        is_worker = self.process.role == "worker"
        return Source(*self._labels(), device=f"worker-{self.process.pid}" if is_worker else "")

    def _labels(self) -> tuple[str, str, int, str]:
        process = self.process
        return process.run_id, process.segment, process.rank, process.host
