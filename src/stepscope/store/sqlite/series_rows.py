"""Reads and checks the rows of series and key sets in a SQLite store."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from stepscope.schema.series import SeriesInfo, Source
from stepscope.store.sqlite.checksums import (
    DamagedRowError,
    as_stored,
    check,
    check_count,
    check_order,
    checksum,
    checksum_columns,
    has_checksums,
    row_count,
    row_counts_by_prefix,
)
from stepscope.store.sqlite.process_rows import read_processes

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection

    from numpy.typing import NDArray

    from stepscope.schema.series import Axis, Selection
    from stepscope.store.sqlite.checksums import Column

    Floats = NDArray[np.float64]

AXES = ("step", "seconds")
LABELS = "id, run_id, key, segment, rank, host, device, axis"
_COUNTERS = "points, last, last_step, last_ns"
_KEY_SET_LABELS = "id, run_id, segment, rank, host, device, axis, keys"
_IN_LIST = "IN (SELECT value FROM json_each(?))"
_ROW_HEAD = struct.Struct("<qq")
_VALUE = struct.Struct("<d")

Newest = tuple[float | None, int | None, int]
"""The newest value of a series, its step, and when it was logged."""


@dataclass(frozen=True)
class KeySetRow:
    """A row of the table key_set."""

    id: int
    axis: str
    keys: list[str]
    blocks: int
    rows: int | None
    """How many rows it has; None where they were not counted."""
    sealed: int | None
    """How many of them are in blocks."""
    last: bytes | None
    """Its newest row in the format of the tail; None where an older version wrote it."""

    @property
    def unsealed(self) -> int | None:
        """How many rows are not in blocks."""
        return None if self.rows is None or self.sealed is None else self.rows - self.sealed

    def newest(self, position: int) -> Newest | None:
        """The newest value in one of its columns; None where an older version wrote it."""
        if self.last is None:
            return None
        step, time_ns = _ROW_HEAD.unpack_from(self.last)
        (value,) = _VALUE.unpack_from(self.last, _ROW_HEAD.size + position * _VALUE.size)
        return as_stored(value), step, time_ns


@dataclass(frozen=True)
class SeriesRow:
    """A row of the table series, with the key sets that contain its points and its column in each."""

    id: int
    key: str
    source: Source
    points: int
    newest: Newest
    key_sets: list[tuple[KeySetRow, int]]


@dataclass(frozen=True)
class SeriesPart:
    """The part of a series in one key set of one source."""

    series_id: int
    points: int
    """How many points the whole series has."""
    segment: str
    position: int
    key_set: KeySetRow


def series_checksum(labels: tuple[Column, ...], key_sets: int) -> int:
    """The checksum of a series: its labels and the number of its key sets, which rarely changes."""
    return checksum(*labels, key_sets)


def key_set_checksum(labels: int, counts: tuple[Column, ...], last: bytes | None) -> int:
    """The checksum of a key set: its labels, its counts of blocks and rows, its newest row."""
    return checksum(*counts, start=crc32(last or b"", labels))


def read_series(
    connection: sqlite3.Connection,
    run_id: str,
    axis: str | None = None,
    keys: Collection[str] | None = None,
    segment: str | None = None,
) -> list[SeriesRow]:
    """The series of a run, or some of them, in the order they were first stored; checks that none is missing.

    A segment is selected here and not by the query: series are counted for each key, not for each segment.
    """
    condition, values = "run_id = ?", [run_id]
    if axis is not None:
        condition, values = f"{condition} AND axis = ?", [*values, axis]
    filters_here = keys is not None and any("\0" in key for key in keys)  # SQLite ends JSON text at a NUL
    if keys is not None and not filters_here:
        condition, values = f"{condition} AND key {_IN_LIST}", [*values, json.dumps(list(keys))]
    checked = has_checksums(connection)
    rows = connection.execute(
        f"SELECT {LABELS}, {_COUNTERS}, {'key_sets, checksum' if checked else 'NULL, NULL'}"  # noqa: S608 - question marks alone
        # Without it, labels would come from the index, and a row that is another one would not be noticed.
        f" FROM series NOT INDEXED WHERE id IN (SELECT id FROM series WHERE {condition}) ORDER BY id",
        values,
    ).fetchall()
    _check_rows(rows, run_id)
    if keys is not None and filters_here:
        rows = [row for row in rows if row[2] in keys]
    if checked:
        _check_none_is_missing(connection, run_id, axis, keys, rows)
    rows = [row for row in rows if segment in (None, row[3])]
    members = _read_members(connection, [row[0] for row in rows])
    key_sets = _read_key_sets(
        connection, {number for key_sets_of_series in members.values() for number, _ in key_sets_of_series}
    )
    if checked:
        for row in rows:
            check_count("member", len(members[row[0]]), row[-2])
    return [
        _series(row, [(key_sets[number], position) for number, position in members[row[0]]]) for row in rows
    ]


def _read_members(
    connection: sqlite3.Connection, series_ids: Collection[int]
) -> dict[int, list[tuple[int, int]]]:
    """The key sets of some series, and their column in each."""
    members: dict[int, list[tuple[int, int]]] = {number: [] for number in series_ids}
    for series_id, key_set_id, position in connection.execute(
        f"SELECT series_id, key_set_id, position FROM member WHERE series_id {_IN_LIST}"  # noqa: S608 - nor here
        " ORDER BY series_id, key_set_id",
        (json.dumps(list(series_ids)),),
    ):
        members[series_id].append((key_set_id, position))
    return members


def _read_key_sets(connection: sqlite3.Connection, numbers: Collection[int]) -> dict[int, KeySetRow]:
    new_columns = "rows, sealed, last, checksum" if has_checksums(connection) else "NULL, NULL, NULL, NULL"
    key_sets = {}
    for *labels, blocks, rows, sealed, last, expected in connection.execute(
        f"SELECT {_KEY_SET_LABELS}, blocks, {new_columns} FROM key_set"  # noqa: S608 - nor here
        f" WHERE id {_IN_LIST}",
        (json.dumps(list(numbers)),),
    ):
        check("key_set", expected, blocks, rows, sealed, start=crc32(last or b"", checksum(*labels)))
        number, *_, axis, keys = labels
        key_sets[number] = KeySetRow(number, axis, json.loads(keys), blocks, rows, sealed, last)
    check_count("key_set", len(key_sets), len(numbers))
    return key_sets


def read_tail(
    connection: sqlite3.Connection, key_set_id: int, keys: int, expected: int | None
) -> list[Floats]:
    """The pieces of a key set's tail, in order; checks that there are `expected` rows unless that is None."""
    rows = connection.execute(
        f"SELECT rows, data, {checksum_columns(connection, 'tail')} FROM tail"  # noqa: S608 - nor here
        " WHERE key_set_id = ? ORDER BY id",
        (key_set_id,),
    ).fetchall()
    for number, (count, data, expected_checksum) in enumerate(rows):
        check("tail", expected_checksum, key_set_id, number, count, crc32(data))
    check_count("tail", sum(count for count, _, _ in rows), expected)
    return [np.frombuffer(data).reshape(-1, keys + 2) for _, data, _ in rows]


def _series(row: tuple[Any, ...], key_sets: list[tuple[KeySetRow, int]]) -> SeriesRow:
    number, run_id, key, segment, rank, host, device, axis, points, *counters, _, _ = row
    for key_set, position in key_sets:
        if not 0 <= position < len(key_set.keys) or key_set.keys[position] != key:
            raise DamagedRowError("a row of the table member is not what was written")
    counts = [key_set.rows for key_set, _ in key_sets if key_set.rows is not None]
    if key_sets and len(counts) == len(key_sets):
        points = sum(counts)
    candidates = [point for key_set, position in key_sets if (point := key_set.newest(position)) is not None]
    newest: Newest = max(candidates, key=lambda point: point[2]) if candidates else tuple(counters)
    return SeriesRow(number, key, Source(run_id, segment, rank, host, device, axis), points, newest, key_sets)


def _check_rows(rows: list[tuple[Any, ...]], run_id: str) -> None:
    """Raises DamagedRowError when a row is not what was written, or one of another table."""
    for *labels, _, _, _, _, count, expected in rows:
        if labels[1] != run_id:
            raise DamagedRowError("a row of the table series is not what was written")
        check("series", expected, *labels, count)


def _check_none_is_missing(
    connection: sqlite3.Connection,
    run_id: str,
    axis: str | None,
    keys: Collection[str] | None,
    rows: list[tuple[Any, ...]],
) -> None:
    """Raises DamagedRowError when the number of series of a key differs from what was written."""
    counts: dict[str, int] = {}
    for row in rows:
        axis_key = f"{row[7]}/{row[2]}"
        counts[axis_key] = counts.get(axis_key, 0) + 1
    axes = AXES if axis is None else (axis,)
    if keys is None:
        expected = row_counts_by_prefix(connection, run_id, "series/") or {}
        if not rows and not expected:
            check_order(connection, "tally", "series")
        expected = {what: count for what, count in expected.items() if what.partition("/")[0] in axes}
    else:
        expected_counts = {
            f"{axis_name}/{key}": row_count(connection, run_id, f"series/{axis_name}/{key}")
            for axis_name in axes
            for key in keys
        }
        expected = {what: count for what, count in expected_counts.items() if count}
    if counts != expected:
        check_count("series", sum(counts.values()), sum(expected.values()))
        raise DamagedRowError("the table series does not have the series that were written")


def read_keys(
    connection: sqlite3.Connection, run_id: str, axis: Axis, limit: int | None, after: str | None
) -> list[SeriesInfo]:
    """The keys of a run on an axis in alphabetical order, a page of them where a limit is given."""
    keys = None
    if limit is not None or after is not None:
        keys = _page_of_keys(connection, run_id, axis, limit, after)
    series_by_key: dict[str, list[SeriesRow]] = {}
    for series in read_series(connection, run_id, axis, keys):
        series_by_key.setdefault(series.key, []).append(series)
    return [_info(key, series_by_key[key]) for key in sorted(series_by_key)]


def _page_of_keys(
    connection: sqlite3.Connection, run_id: str, axis: Axis, limit: int | None, after: str | None
) -> list[str]:
    """The keys of a page; raises DamagedRowError when one is missing."""
    rows = connection.execute(
        "SELECT DISTINCT key FROM series WHERE run_id = ? AND axis = ? AND (? IS NULL OR key > ?)"
        " ORDER BY key LIMIT ?",
        (run_id, axis, after, after, -1 if limit is None else limit),
    )
    keys = [key for (key,) in rows]
    counts = row_counts_by_prefix(connection, run_id, f"series/{axis}/")
    if counts is not None:
        is_last_page = limit is None or len(keys) < limit
        expected = {
            key
            for key in counts
            if (after is None or key > after) and (is_last_page or (keys and key <= keys[-1]))
        }
        if set(keys) != expected:
            check_count("series", len(keys), len(expected))
            raise DamagedRowError("the table series does not have the series that were written")
    return keys


def _info(key: str, series_rows: list[SeriesRow]) -> SeriesInfo:
    last, last_step, _ = max((series.newest for series in series_rows), key=lambda newest: newest[2])
    ranks = {series.source.rank for series in series_rows if series.source.rank is not None}
    return SeriesInfo(
        key, sum(series.points for series in series_rows), tuple(sorted(ranks)), last, last_step
    )


def read_axis(connection: sqlite3.Connection, run_id: str, key: str) -> Axis | None:
    """The axis of a key; of two, that of logged values comes first. None when there is no such key."""
    row = connection.execute(
        "SELECT axis FROM series WHERE run_id = ? AND key = ? ORDER BY axis = 'seconds' LIMIT 1",
        (run_id, key),
    ).fetchone()
    if has_checksums(connection):
        axes = [axis for axis in AXES if row_count(connection, run_id, f"series/{axis}/{key}")]
        if axes[:1] != ([row[0]] if row else []):
            raise DamagedRowError("the table series does not have the series that were written")
    return row[0] if row else None


def read_series_parts(connection: sqlite3.Connection, selection: Selection) -> list[SeriesPart]:
    """The parts of the selected series: segments in the order they began, key sets as they were stored."""
    parts = [
        SeriesPart(series.id, series.points, series.source.segment, position, key_set)
        for series in read_series(connection, selection.run_id, keys=[selection.key])
        if _is_selected(series.source, selection)
        for key_set, position in series.key_sets
    ]
    order: dict[str, int] = {}
    if len({part.segment for part in parts}) > 1:
        for process in read_processes(connection, selection.run_id):
            earlier = order.get(process.segment, process.started_ns)
            order[process.segment] = min(earlier, process.started_ns)
    return sorted(parts, key=lambda part: (order.get(part.segment, 0), part.key_set.id))


def _is_selected(source: Source, selection: Selection) -> bool:
    return all(
        getattr(selection, label) is None or getattr(selection, label) == getattr(source, label)
        for label in ("segment", "rank", "host", "device", "axis")
    )
