"""Follows the journal of one process, file after file, to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stepscope import procfs
from stepscope.agent.liveness import Pulse, cause_of_death
from stepscope.exporters.base import Table
from stepscope.journal import layout
from stepscope.journal.reader import JournalReader
from stepscope.schema.record import Event
from stepscope.schema.run import Process
from stepscope.schema.series import Source

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from stepscope.agent.feeds import Feeds
    from stepscope.journal.folder import JournalName
    from stepscope.journal.reader import Batch
    from stepscope.store.base import Store

LARGEST = 2**63
MARK_FIELDS = ("pid", "start_ticks", "boot_id", "namespace")


class Follower:
    """One process as the agent sees it: its files, what it said of itself, whether it lives."""

    def __init__(
        self,
        name: JournalName,
        folder: Path,
        store: Store,
        pulse_for: Callable[[procfs.ProcessMark], Pulse],
        feeds: Feeds,
    ) -> None:
        self._name = name
        self._last_words = folder / f"{name.segment}-r{name.rank}-{name.pid}.words"
        self._store = store
        self._pulse_for = pulse_for
        self._feeds = feeds
        self._readers: dict[Path, JournalReader] = {}
        self._lost: dict[Path, int] = {}
        self._told: dict[Path, int] = {}
        self._batches: list[tuple[JournalReader, Batch]] = []
        self._done_with: list[Path] = []
        self.files: list[Path] = []
        """The files looked at last."""
        self._dead = False
        self.process = self._known() or self._stranger()
        self._pulse = pulse_for(self._mark())
        self.is_here = False
        """Whether the process runs on this host and can be watched."""
        self._end_is_known = self.process.ended_ns is not None
        self.ended = False
        """Whether everything it will ever write has been kept."""
        self.caught_up = True
        """Whether all that was written when last looked at has been read."""

    def gather(self, files: list[Path]) -> bool:
        """Reads what has come; True when there is something to tell the store."""
        self._batches, self.files = [], files
        alive = self._pulse.is_alive()  # judged before reading: no record comes later
        self.is_here = alive is True
        self._dead = self._dead or alive is False
        self.caught_up = True
        for path in files:
            reader = self._reader(path)
            if reader is None:
                continue
            final = self._is_final(reader, path, files)
            batch = reader.read(final=final)
            self._batches.append((reader, batch))
            self._end_is_known |= any(kind == layout.END for kind, _ in batch.notes)
            self.caught_up = self.caught_up and batch.last
            if not (final and batch.last):
                # What comes later in time lies in the files after this one, which may have begun meanwhile.
                self.caught_up = self.caught_up and (final or not reader.closed_by_writer())
                break
            self._done_with.append(path)
        finished = self._dead or self._end_is_known
        self.ended = finished and len(self._done_with) == len(files)
        return self.ended or self._has_news() or self._changes_status()

    def tell(self) -> int:
        """Tells the store what was gathered, within its transaction; returns the number of records."""
        records = 0
        for reader, batch in self._batches:
            records += self._tell_batch(batch)
            self.process.lost += batch.lost - self._lost[reader.path]
            self._lost[reader.path] = batch.lost
            self._told[reader.path] = batch.offset
            self._store.set_progress(reader.file_id, batch.offset, batch.lost)
        if records:
            self._pulse.grew(records)
        self._judge()
        self._store.put_process(self.process)
        self._feeds.note_process(self.process)
        if self.ended:
            self._store.seal(self._source())
        return records

    def let_go(self) -> list[int]:
        """Deletes files whose every record the store has; returns their ids."""
        forgotten = []
        for path in self._done_with:
            reader = self._readers.pop(path, None)
            if reader is not None:
                reader.mark_stored()
                forgotten.append(reader.file_id)
                reader.close()
            path.unlink(missing_ok=True)
        self._done_with = []
        if self.ended:
            self._last_words.unlink(missing_ok=True)
        return forgotten

    def sync(self) -> None:
        """Asks the disk to keep the files; one it cannot keep is closed and a new one asked for."""
        for reader in self._readers.values():
            try:
                reader.sync()
            except OSError:
                reader.request_retirement()

    def close(self) -> None:
        """Forgets the files without deleting them."""
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()

    def _reader(self, path: Path) -> JournalReader | None:
        """Opens a file at the offset the store has; None for one made this moment, without a header yet."""
        known = self._readers.get(path)
        if known is None:
            known = JournalReader(path)
            if not (known.begun or self._dead):
                known.close()
                return None
            offset, self._lost[path] = self._store.progress(known.file_id)
            if offset:
                known.close()
                known = JournalReader(path, offset)
            self._readers[path] = known
            self._told[path] = known.offset
        return known

    def _is_final(self, reader: JournalReader, path: Path, files: list[Path]) -> bool:
        followed_by_another = path != files[-1] and reader.grows_by_size()
        return self._dead or followed_by_another or reader.closed_by_writer()

    def _has_news(self) -> bool:
        """Whether a reader got on, be it past nothing but names: who waits for the store goes by offsets."""
        return any(batch.offset > self._told[reader.path] for reader, batch in self._batches)

    def _changes_status(self) -> bool:
        stalls = self._silence() is not None
        return stalls != (self.process.status == "stalled") and not self._end_is_known

    def _tell_batch(self, batch: Batch) -> int:
        for kind, fields in batch.notes:
            self._take_note(kind, dict(fields))
        source = self._source()
        records = len(batch.notes) + len(batch.arrays)
        for rows in batch.rows:
            self._introduce(int(rows.times[0]))
            self._store.append(source, rows.keys, rows.steps, rows.times, rows.values)
            self._feeds.note(Table(source, rows.keys, rows.steps, rows.times, rows.values))
            records += len(rows.steps)
            self.process.last_ns = max(self.process.last_ns, int(rows.times[-1]))
        for fields, raw in batch.arrays:
            self._introduce(fields["time"])
            place = self._place()
            described = {**fields, "key": layout.clean(fields["key"])}
            self._store.put_array(place[0], place[1], place[2], described, raw)
        return records

    def _take_note(self, kind: int, fields: dict[str, Any]) -> None:
        time_ns = fields.pop("time")
        self.process.last_ns = max(self.process.last_ns, time_ns)
        if kind == layout.OPEN:
            self._take_opening(fields)
        elif kind == layout.END:
            self.process.status = fields["status"]
            self.process.reason = layout.clean(fields["reason"])
            self.process.exit_code = fields.get("exit_code")
            self.process.dropped = fields["dropped"]
            self.process.ended_ns = time_ns
            self._end_is_known = True
        else:
            event_kind, step = layout.clean(fields.pop("kind")), _step_of(fields)
            if event_kind == "gap":
                self.process.dropped += fields["dropped"]
            place = self._place()
            event = Event(event_kind, time_ns, step, place[2], place[1], fields)
            self._introduce(time_ns)
            self._store.put_event(place[0], event)
            self._feeds.note_event(place[0], event)

    def _take_opening(self, said: dict[str, Any]) -> None:
        before = self.process
        if before.ended_ns is not None:
            # It was about to become another program, and did not, or that program records too.
            before.status, before.reason, self._end_is_known = "running", "", False
        self.process = Process(
            run_id=self._name.run_id,
            name=said["run"],
            project=said["project"],
            segment=self._name.segment,
            rank=self._name.rank,
            # One that was taken for a stranger is already in the store under these two.
            host=before.host if before.started_ns else said["host"],
            pid=self._name.pid,
            role=said["role"],
            started_ns=before.started_ns or said["started_ns"],
            status=before.status,
            reason=before.reason,
            last_ns=before.last_ns,
            dropped=before.dropped,
            lost=before.lost,
            facts=said["facts"],
        )
        self._store.put_process(self.process)
        if not before.facts:
            self._pulse = self._pulse_for(self._mark())

    def _introduce(self, first_ns: int) -> None:
        """Begins without the opening, where that was damaged: the run is known by its id alone."""
        if self.process.started_ns == 0:
            self.process.started_ns = first_ns
            self._store.put_process(self.process)

    def _judge(self) -> None:
        """Says how the process fares, unless it has said so itself."""
        if self._end_is_known:
            return
        if self.ended:
            self._write_obituary()
            return
        silence = self._silence()
        self.process.status = "running" if silence is None else "stalled"
        self.process.reason = "" if silence is None else f"no record for {silence:.0f} s"

    def _silence(self) -> float | None:
        """Seconds of a silence that means a stall; who only has a machine watched has nothing to say."""
        return None if self.process.role == "machine" else self._pulse.silent_for()

    def _write_obituary(self) -> None:
        process = self.process
        process.ended_ns = process.last_ns
        if process.role == "worker":
            process.status, process.reason = "finished", ""
            return
        status, process.reason = cause_of_death(
            process, self._last_words, memory_ran_out=self._pulse.memory_ran_out()
        )
        process.status = "failed" if status == "failed" else "crashed"

    def _source(self) -> Source:
        is_worker = self.process.role == "worker"
        return Source(*self._place(), device=f"worker-{self.process.pid}" if is_worker else "")

    def _place(self) -> tuple[str, str, int, str]:
        process = self.process
        return process.run_id, process.segment, process.rank, process.host

    def _mark(self) -> procfs.ProcessMark:
        found = self.process.facts.get("mark", {})
        if found:
            return procfs.ProcessMark(**{field: found[field] for field in MARK_FIELDS})
        # Its opening was damaged or has not come yet: go by the number alone.
        return procfs.mark(self._name.pid)

    def _known(self) -> Process | None:
        for process in self._store.processes(self._name.run_id):
            place = (process.run_id, process.segment, process.rank, process.pid)
            if place == self._name.stem:
                return process
        return None

    def _stranger(self) -> Process:
        """Stands in until the opening has been read, or for good when it is damaged."""
        name = self._name
        return Process(
            run_id=name.run_id,
            name=name.run_id,
            project="default",
            segment=name.segment,
            rank=name.rank,
            host="",
            pid=name.pid,
            role="rank",
            started_ns=0,
        )


def _step_of(fields: dict[str, Any]) -> int | None:
    """Takes the step out of an event; what a user gave as one and no database can hold stays a field."""
    step = fields.get("step")
    if isinstance(step, int) and abs(step) < LARGEST:
        del fields["step"]
        return step
    return None
