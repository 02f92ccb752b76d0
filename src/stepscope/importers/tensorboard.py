"""Imports TensorBoard event files; each folder with such files is a run."""

from __future__ import annotations

import struct
from collections import Counter
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from stepscope.errors import SourceError
from stepscope.importers.base import (
    MEDIA,
    Array,
    End,
    Importer,
    LeftOut,
    Note,
    Params,
    Row,
    SourceRun,
    run_or_damage,
)
from stepscope.source_files import wire_format as wire
from stepscope.source_files.cells import nanoseconds
from stepscope.source_files.record_file import MAX_RECORD, records_of
from stepscope.source_files.source_folder import damaged, files_in, open_source
from stepscope.source_files.text_lines import modified_ns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from stepscope.importers.base import DamagedRun, Record
    from stepscope.schema.run import Status

MARK = "tfevents"
FIRST_EVENTS = 20
"""Events among which the earliest one is the start of the run."""

_WALL_TIME, _STEP, _SUMMARY = 1, 2, 5
_TAG, _SIMPLE_VALUE, _HISTOGRAM, _TENSOR, _METADATA = 1, 2, 5, 8, 9
_IMAGE, _AUDIO = 4, 6
_NUMBER_TYPES = {1: "<f4", 2: "<f8", 3: "<i4", 9: "<i8"}
"""The types of tensors that hold numbers: float, double, int32, int64."""
_TENSOR_FIELDS = {5: "<f4", 6: "<f8"}
"""Lists of floats and of doubles in a tensor."""
_OUTCOMES: dict[int, tuple[Status, str]] = {1: ("finished", ""), 2: ("failed", "ended with a failure")}
UNKNOWN_END = "imported; TensorBoard does not record how a run ended"
CUT_OFF = "the source ends within a record"
UNREAD = f"records of more than {MAX_RECORD >> 20} MiB"
"""Their tags are not read."""


class TensorBoard(Importer):
    """Scalars, histograms, texts and hyper-parameters; pictures, audio, graphs and curves are left out."""

    title: ClassVar[str] = "TensorBoard"

    def recognises(self, place: str) -> bool:
        """Whether it is an event file, or a folder with one in it."""
        path = Path(place)
        return MARK in path.name if path.is_file() else any(files_in(path, _is_event_file))

    def runs(self, place: str) -> Iterator[SourceRun | DamagedRun]:
        """A run for each folder that has event files, named by its path."""
        root = Path(place)
        if root.is_file():
            name = root.absolute().parent.name
            yield run_or_damage(name, root, partial(_run, name, [root]))
            return
        by_folder: dict[Path, list[Path]] = {}
        for path in files_in(root, _is_event_file):
            by_folder.setdefault(path.parent, []).append(path)
        if not by_folder:
            raise SourceError(
                f"{root} has no event files, whose names have {MARK!r} in them. Check the path."
            )
        for folder, files in by_folder.items():
            name = root.resolve().name if folder == root else folder.relative_to(root).as_posix()
            yield run_or_damage(name, folder, partial(_run, name, files))


def _is_event_file(name: str) -> bool:
    return MARK in name


def _run(name: str, files: list[Path]) -> SourceRun:
    times_ns = [event.time_ns for event in islice(_events(files), FIRST_EVENTS) if event.time_ns]
    first_ns = times_ns[0] if times_ns else modified_ns(files[0])
    place = files[0] if len(files) == 1 else files[0].parent
    # The name of an event file has the second and the host that made it, often no more.
    return SourceRun(
        name=name,
        identity=f"{files[0].absolute().parent.name} {files[0].name} {first_ns}",
        place=str(place),
        # The first event has the time at which the file was made, which may be long after the run.
        started_ns=min(times_ns, default=first_ns),
        records=lambda: _Reading(files).records(),
        written_ns=max(map(modified_ns, files)),
    )


class _Reading:
    """One pass over the event files of a run."""

    def __init__(self, files: list[Path]) -> None:
        self._files = files
        self._plugins: dict[str, str] = {}
        """The plug-in of each tag, which only its first event names."""
        self._left_out: Counter[str] = Counter()
        self._end = End("finished", UNKNOWN_END)

    def records(self) -> Iterator[Record]:
        """The records of all files, in the order written."""
        cut_off: list[Path] = []
        for event in _events(self._files, cut_off):
            if event.is_unread:
                self._left_out[UNREAD] += 1
            try:
                records = [
                    record
                    for field, value in wire.fields_of(event.summary)
                    if field == 1 and isinstance(value, bytes)
                    for record in self._value(value, event.step, event.time_ns)
                ]
            except (ValueError, struct.error) as error:
                raise damaged(event.path, f"the record at byte {event.at}", error) from error
            yield from records
        yield LeftOut(self._left_out, MEDIA)
        yield End("crashed", f"{CUT_OFF} ({cut_off[-1].name})") if cut_off else self._end

    def _value(self, value: bytes, step: int, time_ns: int) -> Iterator[Record]:
        parts = dict(wire.fields_of(value))
        tag = _as_bytes(parts.get(_TAG, b"")).decode()
        plugin_data = wire.first(_as_bytes(parts.get(_METADATA, b"")), 1)
        if plugin_data:
            self._plugins[tag] = wire.text(plugin_data, 1)
        plugin = self._plugins.get(tag, "")
        if plugin == "hparams":
            yield from self._hparams(wire.first(plugin_data, 2))
        elif _SIMPLE_VALUE in parts:
            yield Row(step, time_ns, {tag: wire.single(parts[_SIMPLE_VALUE])})
        elif _HISTOGRAM in parts:
            yield Array(tag, step, time_ns, _histogram(_as_bytes(parts[_HISTOGRAM])))
        elif _TENSOR in parts:
            records = list(_tensor_records(tag, step, time_ns, plugin, _as_bytes(parts[_TENSOR])))
            if not records:
                self._left_out[tag] += 1
            yield from records
        elif _IMAGE in parts or _AUDIO in parts:
            self._left_out[tag] += 1

    def _hparams(self, content: bytes) -> Iterator[Record]:
        """The hyper-parameters of a session, and how it ended."""
        params = {}
        for field, entry in wire.fields_of(wire.first(content, 3)):
            if field == 1 and isinstance(entry, bytes):
                params[wire.text(entry, 1)] = _plain(wire.first(entry, 2))
        if params:
            yield Params(params)
        ending = wire.first(content, 4)
        status = _OUTCOMES.get(wire.integer(ending, 1))
        if status is not None:
            self._end = End(*status)


def _tensor_records(tag: str, step: int, time_ns: int, plugin: str, tensor: bytes) -> Iterator[Record]:
    if plugin == "text":
        texts = [value for field, value in wire.fields_of(tensor) if field == 8 and isinstance(value, bytes)]
        text = "\n".join(part.decode("utf-8", "backslashreplace") for part in texts)
        key = tag.removesuffix("/text_summary")
        yield Note("text", time_ns, step, {"key": key, "value": text})
        return
    numbers = _numbers(tensor)
    if plugin in ("scalars", "") and numbers.size == 1:
        yield Row(step, time_ns, {tag: float(numbers[0])})
    elif plugin == "histograms" and numbers.size % 3 == 0:
        yield Array(tag, step, time_ns, numbers.reshape(-1, 3))


def _numbers(tensor: bytes) -> NDArray[np.float64]:
    """The numbers of a tensor; none for types that are not numbers."""
    dtype = _NUMBER_TYPES.get(wire.integer(tensor, 1))
    if dtype is None:
        return np.empty(0)
    if raw := wire.first(tensor, 4):
        return _array(raw, dtype)
    values: list[float] = []
    for field, value in wire.fields_of(tensor):
        if field in _TENSOR_FIELDS and isinstance(value, bytes):
            values += _array(value, _TENSOR_FIELDS[field]).tolist()
        elif field in (7, 10):  # int32 and int64, packed or one by one
            packed = [value] if isinstance(value, int) else wire.packed(value)
            values += [float(wire.signed(number)) for number in packed]
    return np.array(values, np.float64)


def _array(raw: bytes, dtype: str) -> NDArray[np.float64]:
    numbers: NDArray[np.float64] = np.frombuffer(raw, dtype).astype(np.float64)
    return numbers


def _histogram(message: bytes) -> NDArray[np.float64]:
    """The upper limit and the count of each bucket."""
    lists: dict[int, list[float]] = {6: [], 7: []}
    for field, value in wire.fields_of(message):
        if field in lists and isinstance(value, bytes):
            lists[field] += _array(value, "<f8").tolist()
    if len(lists[6]) != len(lists[7]):
        raise ValueError(f"a histogram has {len(lists[6])} limits and {len(lists[7])} counts")
    return np.column_stack([lists[6], lists[7]])


def _plain(value: bytes) -> float | str | bool | None:
    """A `google.protobuf.Value` that is no list and no object."""
    for field, part in wire.fields_of(value):
        if field == 2:
            return wire.double(part)
        if field == 3 and isinstance(part, bytes):
            return part.decode()
        if field == 4:
            return bool(part)
    return None


class _Event(NamedTuple):
    path: Path
    at: int
    """The position of its record in the file."""
    time_ns: int
    step: int
    summary: bytes
    is_unread: bool
    """Whether its record was passed over."""


def _events(files: list[Path], cut_off: list[Path] | None = None) -> Iterator[_Event]:
    """The events of several files; files that end within a record are added to `cut_off`."""
    for path in files:
        with open_source(path) as file:
            for at, record in records_of(file, path):
                if record is None:
                    if cut_off is not None:
                        cut_off.append(path)
                    break
                try:
                    parts = dict(wire.fields_of(record))
                    time_ns = nanoseconds(wire.double(parts[_WALL_TIME])) if _WALL_TIME in parts else 0
                    step, summary = wire.signed(parts.get(_STEP, 0)), _as_bytes(parts.get(_SUMMARY, b""))
                    event = _Event(path, at, time_ns, step, summary, is_unread=not record)
                except (ValueError, struct.error) as error:
                    raise damaged(path, f"the record at byte {at}", error) from error
                yield event


def _as_bytes(value: int | bytes) -> bytes:
    return value if isinstance(value, bytes) else b""
