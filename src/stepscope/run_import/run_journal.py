"""Writes an imported run as a journal, with the times of its source, which the agent reads like any other."""

from __future__ import annotations

import hashlib
from array import array
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from stepscope.errors import JournalError, SourceError, StoreUnavailable
from stepscope.importers.base import Array, End, LeftOut, Marks, Note, Params, Remark, Row
from stepscope.journal import layout
from stepscope.journal.folder import JournalName
from stepscope.journal.supply import SegmentSupply
from stepscope.journal.writer import JournalWriter
from stepscope.recorder.identity.params import MAX_TEXT, PlainParams
from stepscope.recorder.key_names import KeyNames
from stepscope.schema.keys import IMPORTED
from stepscope.schema.redact import Redaction, redact_mapping

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from stepscope.importers.base import Record, SourceRun
    from stepscope.schema.identity import Identity
    from stepscope.schema.privacy import Privacy

FILE_BYTES = 256 << 20
"""Size of a journal file: it grows with what is written, and a reader has all files of a run open."""
UNLIMITED = 1 << 62
MAX_KEYS = 50_000
MAX_ROW = 500
"""Values of one record; a row of more is written as several of the same step."""
MAX_EVENT_CHARACTERS = 64_000
NO_PROCESS = 0
"""In place of a process number: the training ran elsewhere, and this command is not it."""


MAX_LISTED = 10
"""Names that a remark lists."""


@dataclass
class Summary:
    """What was read of a run."""

    points: int = 0
    arrays: int = 0
    texts: int = 0
    params: int = 0
    keys: set[str] = field(default_factory=set)
    last_ns: int = 0
    end: End = field(default_factory=lambda: End("finished"))
    marks: Marks = field(default_factory=lambda: Marks((), ""))
    left_out: dict[str, int] = field(default_factory=dict)
    """How many values of each name were left out."""
    remarks: list[str] = field(default_factory=list)
    """What a person should know about the import, such as what was left out."""
    is_empty: bool = True
    _digest: Any = field(default_factory=hashlib.sha256, repr=False)

    def count(self, record: Record, run: SourceRun) -> None:
        """Counts a record; raises SourceError for more metrics than a run may have."""
        if isinstance(record, Row):
            self.points += len(record.values)
            self.keys.update(record.values)
            if len(self.keys) > MAX_KEYS:
                raise SourceError(
                    f"{run.place} cannot be imported: run {run.name!r} has more than {MAX_KEYS:,} metrics, "
                    "the most a run may have. Nothing was imported. Leave out those that you do not need."
                )
        elif isinstance(record, Params):
            self.params += len(record.values)
            self.remarks += [remark for remark in _remarks_on(record) if remark not in self.remarks]
        else:
            self._take_remark(record)
        self.is_empty = self.is_empty and not _has_content(record)
        self._digest.update(_bytes_of(record))
        self.arrays += isinstance(record, Array)
        self.texts += isinstance(record, Note) and record.kind == "text"
        if isinstance(record, Row | Array | Note):
            self.last_ns = max(self.last_ns, record.time_ns)

    def _take_remark(self, record: Record) -> None:
        """Keeps what is said about the run as a whole."""
        if isinstance(record, End):
            self.end = record
        elif isinstance(record, Marks):
            self.marks = record
        elif isinstance(record, Remark):
            self.remarks.append(record.text)
        elif isinstance(record, LeftOut) and record.counts:
            for name, count in record.counts.items():
                self.left_out[name] = self.left_out.get(name, 0) + count
            self.remarks.append(f"left out {record.what}: {_listed(record.counts)}")

    @property
    def content(self) -> str:
        """A digest of what was read, without times: those of a table may be that of its file."""
        return str(self._digest.hexdigest()[:32])

    @property
    def ended_ns(self) -> int:
        """When the run ended."""
        return self.last_ns if self.end.time_ns is None else self.end.time_ns


def _listed(counts: Mapping[str, int]) -> str:
    """Names with a number each."""
    names = [f"{name} ({count:,})" for name, count in islice(counts.items(), MAX_LISTED)]
    return ", ".join(names + [f"{len(counts) - MAX_LISTED} more"] * (len(counts) > MAX_LISTED))


def _remarks_on(params: Params) -> Iterator[str]:
    """What a run does not keep of its parameters."""
    lengths = dict(_lengths_of_texts(params.values.items(), ""))
    cut = {name: length for name, length in lengths.items() if length > MAX_TEXT}
    if cut:
        yield f"only the first {MAX_TEXT:,} characters of parameters were kept: {_listed(cut)}"
    for _, complaint in PlainParams(params.values).complaints():
        yield complaint.rstrip(".")


def _lengths_of_texts(values: Iterable[tuple[Any, Any]], prefix: str) -> Iterator[tuple[str, int]]:
    """The names and lengths of the texts among parameters, also of nested ones."""
    for name, value in values:
        if isinstance(value, str):
            yield f"{prefix}{name}", len(value)
        elif isinstance(value, dict | list):
            nested = value.items() if isinstance(value, dict) else enumerate(value)
            yield from _lengths_of_texts(nested, f"{prefix}{name}.")


def _has_content(record: Record) -> bool:
    """Whether a record is worth keeping a run for."""
    return bool(record.values) if isinstance(record, Row | Params) else isinstance(record, Array | Note)


def _bytes_of(record: Record) -> bytes:
    """What of a record a later import is compared with."""
    if isinstance(record, Row):
        names = "\0".join(record.values).encode("utf-8", "surrogatepass")
        return b"%d %s" % (record.step, names) + array("d", record.values.values()).tobytes()
    if isinstance(record, Array):
        return repr((record.key, record.step)).encode() + record.values.tobytes()
    if isinstance(record, End):
        return record.status.encode()
    kept = (record.step, record.fields) if isinstance(record, Note) else record
    return b"" if isinstance(record, LeftOut | Remark) else repr(kept).encode()


class RowTimes:
    """Gives rows the times of their source, and 1 ns more where a key has that time already.

    A store sorts values by time. Files without times have the same for all rows, and some tools write a time
    for many rows at once.
    """

    def __init__(self) -> None:
        self._newest: dict[str, tuple[int, int]] = {}
        """For each key the time of its last value, in the source and as it was given."""

    def of(self, row: Row) -> int:
        """The time of the next row, in ns."""
        given_ns = row.time_ns
        for key in row.values:
            source_ns, newest_ns = self._newest.get(key, (0, -1))
            if row.time_ns >= source_ns:  # else the source itself goes back
                given_ns = max(given_ns, newest_ns + 1)
        self._newest.update(dict.fromkeys(row.values, (row.time_ns, given_ns)))
        return given_ns


class RunJournal:
    """The journal of one imported run, in a store folder of its own until it is complete."""

    def __init__(
        self, staging: Path, identity: Identity, run: SourceRun, origin: Mapping[str, str], privacy: Privacy
    ) -> None:
        """`origin` is what the run keeps of its source; `tool` in it is the kind."""
        self.summary = Summary(last_ns=run.started_ns)
        self._run, self._origin = run, origin
        self._privacy = privacy.for_names()
        self._time_ns = run.started_ns
        self._row_times = RowTimes()
        name = JournalName(identity.run_id, identity.segment, identity.rank, NO_PROCESS)
        # A clock that starts at the epoch: times in the journal are those of the source.
        supply = SegmentSupply(
            staging,
            name,
            segment_bytes=FILE_BYTES,
            unread_bytes=UNLIMITED,
            mapping="never",
            clock=self._clock,
            wall_clock=self._clock,
        )
        facts = {
            IMPORTED: dict(origin),
            "alerts": {"enabled": False},  # nobody is notified of what happened long ago
            "shows_verdict": False,
        }
        opening = {
            "run": layout.clean(identity.name),
            "project": layout.clean(identity.project),
            "host": privacy.name(layout.clean(run.host)),
            "role": "rank",
            "started_ns": max(run.started_ns, 1),
            "facts": facts,
        }
        key_names = KeyNames(self._privacy)
        self._writer = JournalWriter(supply, opening, max_keys=MAX_KEYS, clock=self._clock, name_of=key_names)
        self._raise_trouble()

    def add(self, record: Record) -> None:
        """Writes a record; raises SourceError for one that a store cannot hold."""
        self.summary.count(record, self._run)
        try:
            self._add(record)
        except JournalError as error:
            raise SourceError(
                f"{self._run.place} cannot be imported: a record of run {self._run.name!r} cannot be kept. "
                f"{error} Nothing was imported."
            ) from error

    def close(self) -> None:
        """Writes where the run comes from, and its end."""
        end = self.summary.end
        self._time_ns = max(self.summary.ended_ns, 1)
        counts = {"points": self.summary.points, "content": self.summary.content}
        self._event(IMPORTED, {**self._origin, **counts, "remarks": self.summary.remarks}, None)
        self._writer.close({"status": end.status, "reason": end.reason, "exit_code": end.exit_code})
        self._raise_trouble()

    def _clock(self) -> int:
        return self._time_ns

    def _add(self, record: Record) -> None:
        if isinstance(record, Row):
            self._add_row(record)
        elif isinstance(record, Array):
            self._time_ns = record.time_ns
            fields = {"key": record.key, "step": record.step, "dtype": "<f8", "shape": record.values.shape}
            self._writer.append_array(fields, record.values.astype("<f8").tobytes())
        elif isinstance(record, Params):
            for piece in PlainParams(record.values).records():
                params = self._privacy.nested(redact_mapping({"params": piece}))
                self._writer.append_event("params", params)
        elif isinstance(record, Note):
            self._time_ns = record.time_ns
            self._event(record.kind, record.fields, record.step)

    def _add_row(self, row: Row) -> None:
        self._time_ns = self._row_times.of(row)
        if len(row.values) <= MAX_ROW:
            self._writer.append_row(row.values, row.step, self._time_ns)
        else:
            values = iter(row.values.items())
            while piece := dict(islice(values, MAX_ROW)):
                self._writer.append_row(piece, row.step, self._time_ns)
        self._raise_trouble()

    def _event(self, kind: str, fields: Mapping[str, Any], step: int | None) -> None:
        safe = self._privacy.nested(Redaction(MAX_EVENT_CHARACTERS).mapping(fields))
        self._writer.append_event(kind, safe, step)

    def _raise_trouble(self) -> None:
        """Raises StoreUnavailable where the journal is not in a file: then it would drop records."""
        if self._writer.trouble is not None:
            raise StoreUnavailable(
                f"The import cannot be written: {self._writer.trouble}. Nothing was imported. Free some "
                "space, or choose another folder with --store."
            )
