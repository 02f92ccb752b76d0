"""Aligns the points of a run in rows, one rank of a segment at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from stepscope.exporters.base import Rows
from stepscope.schema.series import Source

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from stepscope.reading import Run
    from stepscope.schema.series import Points

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

BATCH_CELLS = 1 << 19
"""Approximate number of cells in a batch of rows."""

MAX_BATCH_ROWS = 1 << 16

WIDE_LABELS = ("run", "segment", "rank", "host", "device", "step", "time", "time_seconds")
LONG_LABELS = ("run", "segment", "rank", "host", "device", "step", "time", "key")


@dataclass(frozen=True)
class _RowSource:
    """The source of the points in a row."""

    run: str
    source: Source

    def points(self, run: Run, key: str) -> Points:
        """Returns the points of a key of this source."""
        source = self.source
        return run.series(key, source.rank, source.segment, source.host, source.device)

    def labels(self, steps: Ints, times_ns: Ints) -> dict[str, NDArray[Any]]:
        """Returns the columns with source and time."""
        count = len(steps)
        return {
            "run": _repeated(self.run, count),
            "segment": _repeated(self.source.segment, count),
            "rank": _ranks(self.source.rank, count),
            "host": _repeated(self.source.host, count),
            "device": _repeated(self.source.device, count),
            "step": steps,
            "time": times_ns.view("datetime64[ns]"),
        }


@dataclass(frozen=True)
class _Column:
    """The values of a key and their rows, in ascending order."""

    rows: Ints
    values: Floats

    def fill(self, first: int, values: Floats, present: NDArray[np.bool_]) -> None:
        """Copies the values of a range of rows."""
        begin, end = np.searchsorted(self.rows, (first, first + len(values)))
        positions = self.rows[begin:end] - first
        values[positions] = self.values[begin:end]
        present[positions] = True


def wide_rows(run: Run, keys: Sequence[str]) -> Iterator[Rows]:
    """Yields a row for each step and rank; a key that is logged again at a step begins another row."""
    names = column_names(keys, WIDE_LABELS)
    batch = min(max(BATCH_CELLS // max(len(keys), 1), 1), MAX_BATCH_ROWS)
    yield _wide(_RowSource(run.name, Source(run.id, "", 0, "")), names, _no_calls(), {}, slice(0, 0))
    for row_source in _row_sources(run, keys):
        calls, columns = _columns(run, row_source, keys)
        for first in range(0, len(calls.steps), batch):
            yield _wide(row_source, names, calls, columns, slice(first, first + batch))


def long_rows(run: Run, keys: Sequence[str]) -> Iterator[Rows]:
    """Yields a row for each point, key by key, with the time it was logged."""
    yield _long(_RowSource(run.name, Source(run.id, "", 0, "")), "", _no_calls(), np.empty(0), slice(0, 0))
    for row_source in _row_sources(run, keys):
        for key in keys:
            points = row_source.points(run, key)
            calls = Calls(points.steps, points.times_ns)
            for first in range(0, len(points), MAX_BATCH_ROWS):
                rows = slice(first, first + MAX_BATCH_ROWS)
                yield _long(row_source, key, calls, points.values, rows)


def column_names(keys: Sequence[str], labels: Sequence[str]) -> tuple[str, ...]:
    """Returns column names for keys; a key that equals a label gets underscores until it is unique."""
    taken = {*labels, *keys}
    names = []
    for key in keys:
        name = key
        while name in labels or (name != key and name in taken):
            name += "_"
        taken.add(name)
        names.append(name)
    return tuple(names)


def _row_sources(run: Run, keys: Sequence[str]) -> list[_RowSource]:
    """Returns the sources by segment; within one by rank, then host and device."""
    order = {segment.id: index for index, segment in enumerate(run.segments)}
    wanted_keys = set(keys)
    sources = [source for source, logged in run.sources().items() if not wanted_keys.isdisjoint(logged)]
    ordered = sorted(
        dict.fromkeys(replace(source, axis="step") for source in sources),
        key=lambda source: (
            order.get(source.segment, 0),
            source.rank is None,
            source.rank or 0,
            source.host,
            source.device,
        ),
    )
    return [_RowSource(run.name, source) for source in ordered]


def _columns(run: Run, row_source: _RowSource, keys: Sequence[str]) -> tuple[Calls, dict[int, _Column]]:
    """Returns the rows of a source, and for each logged key its values and rows."""
    distinct: list[Calls] = []
    values_by_column: dict[int, tuple[int, Floats]] = {}
    for column, key in enumerate(keys):
        points = row_source.points(run, key)
        if len(points):
            values_by_column[column] = (_index(distinct, points), points.values)
    calls, rows = line_up(distinct)
    columns = {column: _column(rows[index], values) for column, (index, values) in values_by_column.items()}
    return calls, columns


def _column(rows: Ints, values: Floats) -> _Column:
    if (np.diff(rows) > 0).all():
        return _Column(rows, values)
    order = np.argsort(rows)
    return _Column(rows[order], values[order])


def _index(distinct: list[Calls], points: Points) -> int:
    """Returns the index of the log calls of a key; most keys share them with others."""
    for index, known in enumerate(distinct):
        if known.is_that_of(points):
            return index
    distinct.append(Calls(points.steps, points.times_ns))
    return len(distinct) - 1


def _no_calls() -> Calls:
    return Calls(np.empty(0, np.int64), np.empty(0, np.int64))


def _wide(
    row_source: _RowSource,
    names: tuple[str, ...],
    calls: Calls,
    columns: dict[int, _Column],
    rows: slice,
) -> Rows:
    steps, times_ns = calls.steps[rows], calls.times_ns[rows]
    values = np.zeros((len(steps), len(names)), order="F")
    present = np.zeros(values.shape, bool, order="F")
    for number, column in columns.items():
        column.fill(rows.start, values[:, number], present[:, number])
    labels = row_source.labels(steps, times_ns)
    return Rows({**labels, "time_seconds": times_ns / 1e9}, names, values, present)


def _long(row_source: _RowSource, key: str, calls: Calls, values: Floats, rows: slice) -> Rows:
    steps = calls.steps[rows]
    labels = row_source.labels(steps, calls.times_ns[rows])
    labels["key"] = _repeated(key, len(steps))
    column = values[rows, None]
    return Rows(labels, ("value",), column, np.ones(column.shape, bool))


def _ranks(rank: int | None, count: int) -> NDArray[Any]:
    """Returns a column with one rank; masked for a host, which has no rank."""
    if rank is None:
        return np.ma.array(np.zeros(count, np.int64), mask=True)
    return np.full(count, rank, np.int64)


def _repeated(text: str, count: int) -> NDArray[Any]:
    """Returns a column with one text; `np.full` would drop a trailing NUL."""
    column = np.empty(count, object)
    column.fill(text)
    return column


@dataclass(frozen=True)
class Calls:
    """Steps and times of log calls, or of rows, in the order logged."""

    steps: Ints
    times_ns: Ints

    def is_that_of(self, points: Points) -> bool:
        """Returns whether exactly these calls logged a key."""
        if len(self.steps) != len(points) or self.times_ns[-1] != points.times_ns[-1]:
            return False
        return np.array_equal(self.times_ns, points.times_ns) and np.array_equal(self.steps, points.steps)

    def repeat_steps(self) -> bool:
        """Returns whether a step occurs more than once."""
        if (np.diff(self.steps) > 0).all():
            return False
        return len(np.unique(self.steps)) < len(self.steps)


def line_up(distinct: Sequence[Calls]) -> tuple[Calls, list[Ints]]:
    """Returns the rows, and for each series of calls the row of each call.

    A row takes what is logged for its step until a key occurs again. Rows are in the order of their first
    call.
    """
    if len(distinct) < 2:
        return _single_series(distinct)
    owners = np.repeat(np.arange(len(distinct)), [len(calls.steps) for calls in distinct])
    steps = np.concatenate([calls.steps for calls in distinct])
    times_ns = np.concatenate([calls.times_ns for calls in distinct])
    order = np.lexsort((owners, times_ns, steps))
    steps, times_ns = steps[order], times_ns[order]
    begins = np.r_[True, steps[1:] != steps[:-1]]
    if any(calls.repeat_steps() for calls in distinct):
        begins[_further_rows(steps, times_ns, owners[order])] = True
    firsts = np.flatnonzero(begins)
    by_time = np.argsort(times_ns[firsts], kind="stable")
    rank_of_row = np.empty(len(firsts), np.int64)
    rank_of_row[by_time] = np.arange(len(firsts))
    goes_to = np.empty(len(order), np.int64)
    goes_to[order] = rank_of_row[np.cumsum(begins) - 1]
    ends = np.cumsum([len(calls.steps) for calls in distinct])
    ordered = firsts[by_time]
    return Calls(steps[ordered], times_ns[ordered]), np.split(goes_to, ends[:-1])


def _single_series(distinct: Sequence[Calls]) -> tuple[Calls, list[Ints]]:
    """Returns one row for each call; for keys that are all logged together."""
    if not distinct:
        return Calls(np.empty(0, np.int64), np.empty(0, np.int64)), []
    return distinct[0], [np.arange(len(distinct[0].steps))]


def _further_rows(steps: Ints, times_ns: Ints, owners: Ints) -> list[int]:
    """Returns where further rows of a step begin, among calls sorted by step and time.

    What was logged at the same time is one call and stays together, unless a key occurs in it twice.
    """
    same = np.r_[False, (steps[1:] == steps[:-1]) & (times_ns[1:] == times_ns[:-1])]
    moment_begins = np.maximum.accumulate(np.where(same, 0, np.arange(len(steps))))
    order = np.lexsort((owners, steps))
    is_repeated = (steps[order][1:] == steps[order][:-1]) & (owners[order][1:] == owners[order][:-1])
    before, repeated = order[:-1][is_repeated], order[1:][is_repeated]
    in_turn = np.argsort(repeated)
    begin, begins = -1, []
    for call, earlier in zip(repeated[in_turn].tolist(), before[in_turn].tolist(), strict=True):
        if earlier >= begin:
            moment = int(moment_begins[call])
            begin = moment if moment > earlier else call
            begins.append(begin)
    return begins
