"""Imports the files that Weights & Biases writes for each run, online or offline."""

from __future__ import annotations

import struct
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar
from zlib import crc32

import numpy as np

from stepscope.errors import SourceError
from stepscope.importers.base import (
    MEDIA,
    NO_VALUES,
    Array,
    End,
    Importer,
    LeftOut,
    Marks,
    Note,
    Params,
    Row,
    SourceRun,
    run_or_damage,
)
from stepscope.source_files import wire_format as wire
from stepscope.source_files.cells import json_in, nanoseconds, sorted_parts
from stepscope.source_files.source_folder import damaged, files_in, open_source
from stepscope.source_files.text_lines import modified_ns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from stepscope.importers.base import DamagedRun, Record

SUFFIX = ".wandb"
MAGIC = b":W&B\xe1\xbe\x00"
BLOCK = 1 << 15
MAX_RECORD = 64 << 20
_HEAD = struct.Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = range(1, 5)
"""A record is in one piece, or in several: no piece crosses the end of a block."""

_HISTORY, _SUMMARY, _CONFIG, _STATS, _OUTPUT_RAW, _RUN, _EXIT = 2, 3, 5, 7, 13, 17, 18
"""The field of `wandb_internal.Record` for each kind of record."""
CONSOLE_CHARACTERS = 60_000
"""How much of the end of the console output is kept."""
SYSTEM = "system."
"""The prefix of machine figures, as in the W&B page's own names."""


class WeightsAndBiases(Importer):
    """History, configuration, summary, tags, notes, machine figures and console output; no media."""

    title: ClassVar[str] = "W&B"

    def recognises(self, place: str) -> bool:
        """Whether it is a file of a run, or a folder with one in it."""
        path = Path(place)
        return path.suffix == SUFFIX if path.is_file() else any(files_in(path, _is_run_file))

    def runs(self, place: str) -> Iterator[SourceRun | DamagedRun]:
        """A run for each file."""
        root = Path(place)
        files = [root] if root.is_file() else list(files_in(root, _is_run_file))
        if not files:
            raise SourceError(
                f"{root} has no files that end in {SUFFIX}. Name the folder `wandb` of the training."
            )
        for path in files:
            yield run_or_damage(path.stem.removeprefix("run-"), path, partial(_run, path))


def _is_run_file(name: str) -> bool:
    return name.endswith(SUFFIX)


def _run(path: Path) -> SourceRun:
    description = b""
    for kind, content in _records(path):
        if kind == _RUN:
            description = content
            break
    try:
        run_id = wire.text(description, 1) or path.stem.removeprefix("run-")
        started_ns = wire.timestamp_ns(wire.first(description, 17)) or modified_ns(path)
        return SourceRun(
            name=wire.text(description, 8) or run_id,
            identity=f"{run_id} {started_ns}",
            place=str(path),
            started_ns=started_ns,
            records=lambda: _Reading(path, started_ns).records(),
            project=wire.text(description, 3),
            host=wire.text(description, 13),
            written_ns=modified_ns(path),
        )
    except ValueError as error:
        raise damaged(path, "the description of the run", error) from error


class _Reading:
    """One pass over the file of a run."""

    def __init__(self, path: Path, started_ns: int) -> None:
        self._path = path
        self._time_ns = started_ns
        self._step = 0
        self._summary: dict[str, Any] = {}
        self._keys: set[str] = set()
        """The keys of the history, whose newest values the summary repeats."""
        self._left_out: dict[str, Counter[str]] = {MEDIA: Counter(), NO_VALUES: Counter()}
        self._marks = Marks((), "")
        self._console = ""
        self._characters_cut = 0
        self._end = End(
            "crashed", "the source has no end record: the run was killed, or its file is incomplete"
        )

    def records(self) -> Iterator[Record]:
        """The records of the run; its summary and console output come last."""
        for number, (kind, content) in enumerate(_records(self._path), start=1):
            try:
                records = list(self._take(kind, content))
            except (ValueError, struct.error, OverflowError) as error:
                raise damaged(self._path, f"record {number}", error) from error
            yield from records
        if self._console:
            fields = {"text": self._console, "left_out": self._characters_cut}
            yield Note("console", self._time_ns, None, fields)
        yield from self._summary_records()
        for what, counts in self._left_out.items():
            yield LeftOut(counts, what)
        yield self._marks
        yield self._end

    def _summary_records(self) -> Iterator[Record]:
        """What the summary has beside the newest values of the history."""
        values = {name: value for name, value in self._summary.items() if name[:1] != "_"}
        parts = sorted_parts(values, has_media=True)
        self._left_out[MEDIA].update(name for name in parts.media if name not in self._keys)
        self._left_out[NO_VALUES].update(name for name in parts.left_out if name not in self._keys)
        numbers = {f"summary/{key}": value for key, value in parts.numbers.items() if key not in self._keys}
        if numbers:
            yield Row(self._step, self._time_ns, numbers)
        for key, text in parts.texts.items():
            if key not in self._keys:
                fields = {"key": f"summary/{key}", "value": text}
                yield Note("text", self._time_ns, self._step, fields)

    def _take(self, kind: int, content: bytes) -> Iterator[Record]:
        if kind == _HISTORY:
            yield from self._history(content)
        elif kind == _STATS:
            yield from self._stats(content)
        elif kind == _RUN:
            fields = wire.fields_of(content)
            tags = [tag.decode() for field, tag in fields if field == 10 and isinstance(tag, bytes)]
            self._marks = Marks(tuple(tags), wire.text(content, 9))
            yield from _params(wire.first(content, 4))
        elif kind == _CONFIG:
            yield from _params(content)
        elif kind == _OUTPUT_RAW:
            self._time_ns = max(self._time_ns, wire.timestamp_ns(wire.first(content, 2)))
            self._add_console(wire.first(content, 3).decode("utf-8", "backslashreplace"))
        else:
            self._take_last(kind, content)

    def _take_last(self, kind: int, content: bytes) -> None:
        """Takes what is passed on at the end: the summary, and how the run ended."""
        if kind == _SUMMARY:
            for path, value in _items(content, 1):
                _put(self._summary, path, value)
            return
        code = wire.integer(content, 1)
        if code:
            self._end = End("failed", f"exit code {code}", self._time_ns, code)
        else:
            self._end = End("finished", "", self._time_ns, 0)

    def _history(self, content: bytes) -> Iterator[Record]:
        values: dict[str, Any] = {}
        for path, value in _items(content, 1):
            _put(values, path, value)
        own = {name: values.pop(name, None) for name in ("_step", "_timestamp", "_runtime", "_wandb")}
        step = own["_step"] if isinstance(own["_step"], int) else wire.integer(wire.first(content, 2), 1)
        is_timed = isinstance(own["_timestamp"], int | float)
        time_ns = nanoseconds(own["_timestamp"]) if is_timed else self._time_ns
        self._time_ns, self._step = max(self._time_ns, time_ns), step
        parts = sorted_parts(values, has_media=True)
        for key, described in parts.media.items():
            histogram = _histogram(described)
            if histogram is None:
                self._left_out[MEDIA][key] += 1
            else:
                yield Array(key, step, time_ns, histogram)
        self._left_out[NO_VALUES].update(parts.left_out)
        self._keys.update(parts.media, parts.numbers, parts.texts, parts.left_out)
        if parts.numbers:
            yield Row(step, time_ns, parts.numbers)
        for key, text in parts.texts.items():
            yield Note("text", time_ns, step, {"key": key, "value": text})

    def _stats(self, content: bytes) -> Iterator[Record]:
        """Machine figures; they have no step of their own, so that of the newest history is used."""
        figures = sorted_parts({SYSTEM + path[0]: value for path, value in _items(content, 3)}).numbers
        if figures:
            yield Row(self._step, wire.timestamp_ns(wire.first(content, 2)), figures)

    def _add_console(self, text: str) -> None:
        self._console += text
        excess = len(self._console) - CONSOLE_CHARACTERS
        if excess > CONSOLE_CHARACTERS:  # rarely: each cut copies all of it
            self._console = self._console[excess:]
            self._characters_cut += excess


def _params(content: bytes) -> Iterator[Record]:
    values: dict[str, Any] = {}
    for path, value in _items(content, 1):
        if path[0] != "_wandb":
            _put(values, path, value)
    if values:
        yield Params(values)


def _items(content: bytes, field: int) -> Iterator[tuple[list[str], Any]]:
    """The names, outermost first, and the value of each item of a list."""
    for number, item in wire.fields_of(content):
        if number != field or not isinstance(item, bytes):
            continue
        names: list[str] = []
        raw = b""
        for part, value in wire.fields_of(item):
            if part in (1, 2) and isinstance(value, bytes) and value:
                names.append(value.decode())
            elif part == 16 and isinstance(value, bytes):
                raw = value
        if names and raw:
            yield names, json_in(raw)


def _put(values: dict[str, Any], path: list[str], value: Any) -> None:
    for name in path[:-1]:
        inner = values.get(name)
        values[name] = values = inner if isinstance(inner, dict) else {}
    values[path[-1]] = value


def _histogram(described: dict[str, Any]) -> NDArray[np.float64] | None:
    """The upper limit and the count of each bucket; None for what is not a histogram."""
    limits, counts = described.get("bins"), described.get("values")
    if described["_type"] != "histogram" or not isinstance(limits, list) or not isinstance(counts, list):
        return None
    return np.array([limits[1:], counts], np.float64).T if len(limits) == len(counts) + 1 else None


def _records(path: Path) -> Iterator[tuple[int, bytes]]:
    """The kind and the content of each record; a last one that is cut off, as after a kill, is left out."""
    with open_source(path) as file:
        if not MAGIC.startswith(file.read(len(MAGIC))):
            raise SourceError(f"{path} is not a run file of W&B: its first bytes differ. Check the path.")
        pieces: list[bytes] = []
        while (piece := _next_piece(file, path)) is not None:
            part, content = piece
            if part in (_FULL, _FIRST):
                pieces = []
            elif not pieces:
                raise damaged(path, f"byte {file.tell()}", "a record begins in its middle")
            pieces.append(content)
            if sum(map(len, pieces)) > MAX_RECORD:
                raise damaged(path, f"byte {file.tell()}", f"a record is longer than {MAX_RECORD >> 20} MiB")
            if part in (_FULL, _LAST):
                record, pieces = b"".join(pieces), []
                try:
                    yield from [
                        (field, value)
                        for field, value in wire.fields_of(record)
                        if isinstance(value, bytes) and field in _KINDS
                    ]
                except ValueError as error:
                    raise damaged(path, f"the record before byte {file.tell()}", error) from error


_KINDS = frozenset({_HISTORY, _SUMMARY, _CONFIG, _STATS, _OUTPUT_RAW, _RUN, _EXIT})


def _next_piece(file: BinaryIO, path: Path) -> tuple[int, bytes] | None:
    """The kind and the content of the next piece of a record; None at the end."""
    left = BLOCK - file.tell() % BLOCK
    if left < _HEAD.size:  # filled with zeros
        file.read(left)
    at = file.tell()
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size or not any(head):
        return None
    checksum, length, part = _HEAD.unpack(head)
    if not _FULL <= part <= _LAST or length > BLOCK - at % BLOCK - _HEAD.size:
        raise damaged(path, f"byte {at}", f"a piece of the kind {part} with {length} bytes")
    content = file.read(length)
    if len(content) < length:
        return None
    if crc32(content, crc32(bytes([part]))) != checksum:
        raise damaged(path, f"byte {at}", "its checksum is wrong")
    return part, content
