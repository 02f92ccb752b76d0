"""Reads and checks the rows of series and key sets in a SQLite store."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stepscope.schema.series import SeriesInfo
from stepscope.store.checksums import DamagedRowError, are_kept, check, check_count, checksum, counted_between
from stepscope.store.process_rows import read_processes

if TYPE_CHECKING:
    import sqlite3

    from stepscope.schema.series import Axis, Selection
    from stepscope.store.checksums import Column

LABELS = "id, run_id, key, segment, rank, host, device, axis"
COUNTERS = "points, last, last_step, last_ns"

_IS_SOUND = "series_is_sound"


@dataclass(frozen=True)
class Strand:
    """The part of a series that one key set of one source holds."""

    series_id: int
    key_set_id: int
    position: int
    keys: int
    axis: str
    blocks: int
    segment: str
    rows: int | None
    """How many rows the key set has; None where nobody counted."""
    sealed: int | None
    """How many of them are in blocks."""

    @property
    def loose(self) -> int | None:
        """How many rows are not in blocks."""
        return None if self.rows is None or self.sealed is None else self.rows - self.sealed


def teach(connection: sqlite3.Connection) -> None:
    """Lets queries check rows of series as they go through them."""
    connection.create_function(_IS_SOUND, 13, _is_sound, deterministic=True)


def _is_sound(found: int | None, *columns: Column) -> int:
    labels, counters = columns[:8], columns[8:]
    return int(found is None or found == checksum(*counters, start=checksum(*labels)))


def _check_series(connection: sqlite3.Connection) -> str:
    """In a query over series: how many rows are what was written.

    No min() or max(): a query with two of them no longer gives `last` of the row of the greatest `last_ns`.
    """
    if not are_kept(connection):
        return "count(*)"
    return f"sum({_IS_SOUND}(checksum, {LABELS}, {COUNTERS}))"


def read_keys(
    connection: sqlite3.Connection, run_id: str, axis: Axis, limit: int | None, after: str | None
) -> list[SeriesInfo]:
    """The keys of a run on an axis in alphabetical order, a page of them where a limit is given."""
    rows = connection.execute(
        "SELECT key, sum(points), group_concat(DISTINCT rank), last, last_step, max(last_ns), count(*),"  # noqa: S608 - no part of it comes from outside
        f" {_check_series(connection)} FROM series"
        " WHERE run_id = ? AND axis = ? AND (? IS NULL OR key > ?) GROUP BY key ORDER BY key LIMIT ?",
        (run_id, axis, after, after, -1 if limit is None else limit),
    ).fetchall()
    if any(row[-1] != row[-2] for row in rows):
        raise DamagedRowError("a row of the table series is not what was written")
    expected = counted_between(connection, run_id, f"series/{axis}/")
    if expected is not None:
        last = None if limit is None else max((row[0] for row in rows), default="")
        _check_keys({row[0]: row[-2] for row in rows}, expected, after, last)
    return [
        SeriesInfo(key, points, _ranks(ranks), last, last_step)
        for key, points, ranks, last, last_step, *_ in rows
    ]


def _check_keys(found: dict[str, int], counted: dict[str, int], after: str | None, last: str | None) -> None:
    """Raises DamagedRowError when a series is missing between two keys."""
    expected = {
        key: count
        for key, count in counted.items()
        if (after is None or key > after) and (last is None or key <= last)
    }
    if found != expected:
        check_count("series", sum(found.values()), sum(expected.values()))
        raise DamagedRowError("the table series does not have the series that were written")


def read_axis(connection: sqlite3.Connection, run_id: str, key: str) -> Axis | None:
    """What a key is counted in, what was logged before what was read; None when there is no such key."""
    row = connection.execute(
        "SELECT axis FROM series WHERE run_id = ? AND key = ? ORDER BY axis = 'seconds' LIMIT 1",
        (run_id, key),
    ).fetchone()
    if are_kept(connection):
        axes = [axis for axis in ("step", "seconds") if _counted(connection, run_id, axis, key)]
        if axes[:1] != ([row[0]] if row else []):
            raise DamagedRowError("the table series does not have the series that were written")
    return row[0] if row else None


def _counted(connection: sqlite3.Connection, run_id: str, axis: str, key: str) -> int:
    row = connection.execute(
        "SELECT rows FROM tally WHERE run_id = ? AND what = ?", (run_id, f"series/{axis}/{key}")
    ).fetchone()
    return int(row[0]) if row else 0


def read_strands(connection: sqlite3.Connection, selection: Selection) -> list[Strand]:
    """The parts of the series that are asked for, segments in the order they began, sets as they were met."""
    kept = are_kept(connection)
    added = (
        "key_set.rows, key_set.sealed, series.checksum, key_set.checksum"
        if kept
        else "NULL, NULL, NULL, NULL"
    )
    rows = connection.execute(
        "SELECT series.id, series.run_id, series.key, series.segment, series.rank, series.host,"  # noqa: S608 - no part of it comes from outside
        " series.device, series.axis, points, last, last_step, last_ns, member.position,"
        f" key_set.id, key_set.axis, key_set.keys, key_set.blocks, {added}"
        " FROM series JOIN member ON member.series_id = series.id"
        " JOIN key_set ON key_set.id = member.key_set_id WHERE series.run_id = ? AND series.key = ?",
        (selection.run_id, selection.key),
    ).fetchall()
    found: dict[int, list[tuple[Any, ...]]] = {}
    for row in rows:
        found.setdefault(row[0], []).append(row)
    if kept:
        for axis in ("step", "seconds"):
            here = sum(parts[0][7] == axis for parts in found.values())
            check_count("series", here, _counted(connection, selection.run_id, axis, selection.key))
        for parts in found.values():
            _check_parts(parts)
    chosen = [row for parts in found.values() if _is_chosen(parts[0], selection) for row in parts]
    order: dict[str, int] = {}
    if len({row[3] for row in chosen}) > 1:
        for process in read_processes(connection, selection.run_id):
            earlier = order.get(process.segment, process.started_ns)
            order[process.segment] = min(earlier, process.started_ns)
    chosen.sort(key=lambda row: (order.get(row[3], 0), row[13]))
    return [_strand(row, selection.key) for row in chosen]


def _check_parts(parts: list[tuple[Any, ...]]) -> None:
    """Checks one series, and that its key sets have as many rows as it has points."""
    first = parts[0]
    check("series", first[19], *first[8:12], start=checksum(*first[:8]))
    for part in parts:
        check("key_set", part[20], *key_set_row(part[13], part[15], part[14], part[16], part[17], part[18]))
    counts = [part[17] for part in parts]
    if None not in counts:
        check_count("tail", sum(counts), first[8])


def key_set_row(number: int, keys: str, axis: str, *counts: int | None) -> tuple[Column, ...]:
    """What of a key set its checksum is made from; counts are of blocks, rows, and rows in blocks."""
    return number, keys, axis, *counts


def _is_chosen(row: tuple[Any, ...], selection: Selection) -> bool:
    labels = dict(zip(LABELS.split(", "), row, strict=False))
    return all(
        getattr(selection, label) is None or getattr(selection, label) == labels[label]
        for label in ("segment", "rank", "host", "device", "axis")
    )


def _strand(row: tuple[Any, ...], key: str) -> Strand:
    position, keys = row[12], json.loads(row[15])
    if not 0 <= position < len(keys) or keys[position] != key:
        raise DamagedRowError("a row of the table member is not what was written")
    return Strand(row[0], row[13], position, len(keys), row[14], row[16], row[3], row[17], row[18])


def _ranks(listed: str | None) -> tuple[int, ...]:
    """The ranks SQLite lists; none for what belongs to the host."""
    return tuple(sorted(map(int, listed.split(",")))) if listed else ()
