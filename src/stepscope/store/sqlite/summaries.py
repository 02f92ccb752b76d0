"""Summarizes series of the SQLite store: minimum, maximum, sum and newest value, without unpacking chunks."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from stepscope.store.base import SeriesSummary
from stepscope.store.sqlite.checksums import as_stored, check, checksum, has_checksums
from stepscope.store.sqlite.series_rows import read_series, read_tail

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterable

    from numpy.typing import NDArray

    from stepscope.store.sqlite.series_rows import KeySetRow, SeriesRow


_COLUMNS = "series_id, key_set_id, position, nonfinite, minimum, maximum, total"


@dataclass
class Summary:
    """A summary of the values of a series, or of some of them."""

    nonfinite: int = 0
    minimum: float | None = None
    maximum: float | None = None
    total: float | None = 0.0
    """The sum of the finite values; None where it is not a number."""

    def add(self, other: Summary) -> None:
        """Adds more values; where none of them is finite, minimum and maximum do not change."""
        self.nonfinite += other.nonfinite
        if other.minimum is not None:
            self.minimum = other.minimum if self.minimum is None else min(self.minimum, other.minimum)
        if other.maximum is not None:
            self.maximum = other.maximum if self.maximum is None else max(self.maximum, other.maximum)
        self.total = (self.total or 0.0) + (other.total or 0.0)


def write_member(connection: sqlite3.Connection, member: tuple[int, int, int], summary: Summary) -> None:
    """Writes which column of a key set belongs to a series, and the summary of its sealed values.

    The summary is stored and not computed from the chunks, whose number grows with the length of a run.
    """
    total = None if summary.total is None else as_stored(summary.total)
    extremes = [
        None if extreme is None else as_stored(extreme) for extreme in (summary.minimum, summary.maximum)
    ]
    row = (*member, summary.nonfinite, *extremes, total)
    connection.execute(
        "INSERT OR REPLACE INTO member VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*row, checksum(*row))
    )


def add_to_summaries(connection: sqlite3.Connection, key_set_id: int, new_summaries: list[Summary]) -> None:
    """Adds newly sealed values of a key set, column by column."""
    for *row, expected in connection.execute(
        f"SELECT {_COLUMNS}, checksum FROM member WHERE key_set_id = ?",  # noqa: S608 - no part of it comes from outside
        (key_set_id,),
    ).fetchall():
        check("member", expected, *row)
        series_id, _, position, *as_stored = row
        summary = Summary(*as_stored)
        summary.add(new_summaries[position])
        write_member(connection, (series_id, key_set_id, position), summary)


def read_summaries(
    connection: sqlite3.Connection, run_id: str, keys: Collection[str] | None
) -> list[SeriesSummary]:
    """Summaries of all series of a run, or of some keys, in the order they were first stored."""
    series_rows = read_series(connection, run_id, keys=keys)
    summaries = {series.id: Summary() for series in series_rows}
    _add_sealed(connection, summaries)
    _add_tail(connection, series_rows, summaries)
    return [
        SeriesSummary(
            series.key,
            series.source,
            series.points,
            (summary := summaries[series.id]).nonfinite,
            summary.minimum,
            summary.maximum,
            summary.total or 0.0,
            *series.newest,
        )
        for series in series_rows
    ]


def _add_sealed(connection: sqlite3.Connection, summaries: dict[int, Summary]) -> None:
    """Adds sealed values; for a file of an older version, from its chunks."""
    query = (
        f"SELECT {_COLUMNS}, checksum FROM member WHERE series_id"  # noqa: S608 - no part of it comes from outside
        if has_checksums(connection)
        else "SELECT series_id, 0, 0, nonfinite, minimum, maximum, total, NULL FROM chunk WHERE series_id"
    )
    for *row, expected in connection.execute(
        f"{query} IN (SELECT value FROM json_each(?))",  # noqa: S608 - nor here
        (json.dumps(list(summaries)),),
    ):
        check("member", expected, *row)
        summaries[row[0]].add(Summary(*row[3:]))


def _add_tail(
    connection: sqlite3.Connection, series_rows: list[SeriesRow], summaries: dict[int, Summary]
) -> None:
    """Adds values that are not sealed yet, one key set at a time."""
    key_sets: dict[int, tuple[KeySetRow, list[tuple[int, int]]]] = {}
    for series in series_rows:
        for key_set, position in series.key_sets:
            if key_set.unsealed != 0:
                key_sets.setdefault(key_set.id, (key_set, []))[1].append((series.id, position))
    for key_set, members in key_sets.values():
        pieces = read_tail(connection, key_set.id, len(key_set.keys), key_set.unsealed)
        if pieces:
            columns = np.concatenate(pieces)[:, [2 + position for _, position in members]]
            for (series_id, _), summary in zip(members, _summarize_columns(columns), strict=True):
                summaries[series_id].add(summary)


def _summarize_columns(columns: NDArray[np.float64]) -> Iterable[Summary]:
    """The number of non-finite values, the minimum, the maximum and the sum of each column."""
    finite = np.isfinite(columns)
    low = high = values = columns
    if not finite.all():
        low, high = np.where(finite, columns, np.inf), np.where(finite, columns, -np.inf)
        values = np.where(finite, columns, 0.0)
    with np.errstate(over="ignore", invalid="ignore"):
        totals = values.sum(axis=0)
    for nonfinite, minimum, maximum, total in zip(
        (len(columns) - finite.sum(axis=0)).tolist(),
        low.min(axis=0).tolist(),
        high.max(axis=0).tolist(),
        totals.tolist(),
        strict=True,
    ):
        if minimum <= maximum:
            yield Summary(nonfinite, minimum, maximum, total)
        else:
            yield Summary(nonfinite)
