"""Sums series of the SQLite store up: least, greatest, sum and newest value, without unpacking chunks."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from stepscope.store.base import SeriesSummary
from stepscope.store.checksums import are_kept, check, checksum, stored
from stepscope.store.series_rows import loose_rows, read_series

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterable

    from numpy.typing import NDArray

    from stepscope.store.series_rows import KeySetRow, SeriesRow


_COLUMNS = "series_id, key_set_id, position, nonfinite, minimum, maximum, total"


@dataclass
class Summary:
    """What is known of the values of a series, or of some of them."""

    nonfinite: int = 0
    minimum: float | None = None
    maximum: float | None = None
    total: float | None = 0.0
    """The sum of the finite ones; None where it cannot be told, as that of infinities."""

    def add(self, other: Summary) -> None:
        """Adds more values; where none of them is finite there is neither a least nor a greatest."""
        self.nonfinite += other.nonfinite
        if other.minimum is not None:
            self.minimum = other.minimum if self.minimum is None else min(self.minimum, other.minimum)
        if other.maximum is not None:
            self.maximum = other.maximum if self.maximum is None else max(self.maximum, other.maximum)
        self.total = (self.total or 0.0) + (other.total or 0.0)


def write_member(connection: sqlite3.Connection, member: tuple[int, int, int], packed: Summary) -> None:
    """Writes which column of a key set belongs to a series, and the summary of what is packed of it.

    Kept here and not read from all chunks: these are long, and so many more with every day of a run.
    """
    total = None if packed.total is None else stored(packed.total)
    extremes = [None if one is None else stored(one) for one in (packed.minimum, packed.maximum)]
    row = (*member, packed.nonfinite, *extremes, total)
    connection.execute(
        "INSERT OR REPLACE INTO member VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*row, checksum(*row))
    )


def add_to_summaries(connection: sqlite3.Connection, key_set_id: int, packed: list[Summary]) -> None:
    """Adds what was packed of a key set, column by column."""
    for *row, expected in connection.execute(
        f"SELECT {_COLUMNS}, checksum FROM member WHERE key_set_id = ?",  # noqa: S608 - no part of it comes from outside
        (key_set_id,),
    ).fetchall():
        check("member", expected, *row)
        series_id, _, position, *known = row
        summary = Summary(*known)
        summary.add(packed[position])
        write_member(connection, (series_id, key_set_id, position), summary)


def read_summaries(
    connection: sqlite3.Connection, run_id: str, keys: Collection[str] | None
) -> list[SeriesSummary]:
    """Every series of a run, or those of some keys, summed up; in the order they were first met."""
    several = read_series(connection, run_id, keys=keys)
    sums = {series.id: Summary() for series in several}
    _add_packed(connection, sums)
    _add_loose(connection, several, sums)
    return [
        SeriesSummary(
            series.key,
            series.source,
            series.points,
            (found := sums[series.id]).nonfinite,
            found.minimum,
            found.maximum,
            found.total or 0.0,
            *series.newest,
        )
        for series in several
    ]


def _add_packed(connection: sqlite3.Connection, sums: dict[int, Summary]) -> None:
    """Adds what is packed; of a file of an older version that is asked of its chunks."""
    query = (
        f"SELECT {_COLUMNS}, checksum FROM member WHERE series_id"  # noqa: S608 - no part of it comes from outside
        if are_kept(connection)
        else "SELECT series_id, 0, 0, nonfinite, minimum, maximum, total, NULL FROM chunk WHERE series_id"
    )
    for *row, expected in connection.execute(
        f"{query} IN (SELECT value FROM json_each(?))",  # noqa: S608 - nor here
        (json.dumps(list(sums)),),
    ):
        check("member", expected, *row)
        sums[row[0]].add(Summary(*row[3:]))


def _add_loose(connection: sqlite3.Connection, several: list[SeriesRow], sums: dict[int, Summary]) -> None:
    """Adds what is not packed yet, a key set at a time."""
    asked: dict[int, tuple[KeySetRow, list[tuple[int, int]]]] = {}
    for series in several:
        for key_set, position in series.key_sets:
            if key_set.loose != 0:
                asked.setdefault(key_set.id, (key_set, []))[1].append((series.id, position))
    for key_set, members in asked.values():
        pieces = loose_rows(connection, key_set.id, len(key_set.keys), key_set.loose)
        if pieces:
            columns = np.concatenate(pieces)[:, [2 + position for _, position in members]]
            for (series_id, _), summed in zip(members, _summed(columns), strict=True):
                sums[series_id].add(summed)


def _summed(columns: NDArray[np.float64]) -> Iterable[Summary]:
    """How many are not finite, the least, the greatest and the sum of each column."""
    finite = np.isfinite(columns)
    least = greatest = known = columns
    if not finite.all():
        least, greatest = np.where(finite, columns, np.inf), np.where(finite, columns, -np.inf)
        known = np.where(finite, columns, 0.0)
    with np.errstate(over="ignore", invalid="ignore"):
        totals = known.sum(axis=0)
    for nonfinite, minimum, maximum, total in zip(
        (len(columns) - finite.sum(axis=0)).tolist(),
        least.min(axis=0).tolist(),
        greatest.max(axis=0).tolist(),
        totals.tolist(),
        strict=True,
    ):
        if minimum <= maximum:
            yield Summary(nonfinite, minimum, maximum, total)
        else:
            yield Summary(nonfinite)
