"""Sums series of the SQLite store up: least, greatest, sum and newest value, without unpacking chunks."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from stepscope.store.base import SeriesSummary
from stepscope.store.checksums import DamagedRowError, are_kept, check_count, summary_checksum
from stepscope.store.series_rows import loose_rows, read_series

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterable

    from numpy.typing import NDArray

    from stepscope.store.series_rows import KeySetRow, SeriesRow


@dataclass
class _Sums:
    """What is known of the values of a series so far."""

    nonfinite: int = 0
    minimum: float | None = None
    maximum: float | None = None
    total: float = 0.0

    def add(self, nonfinite: int, minimum: float | None, maximum: float | None, total: float | None) -> None:
        """Adds some of its values; where none of them is finite there is neither a least nor a greatest."""
        self.nonfinite += nonfinite
        if minimum is not None:
            self.minimum = minimum if self.minimum is None else min(self.minimum, minimum)
        if maximum is not None:
            self.maximum = maximum if self.maximum is None else max(self.maximum, maximum)
        self.total += total or 0.0


def read_summaries(
    connection: sqlite3.Connection, run_id: str, keys: Collection[str] | None
) -> list[SeriesSummary]:
    """Every series of a run, or those of some keys, summed up; in the order they were first met."""
    several = read_series(connection, run_id, keys=keys)
    sums = {series.id: _Sums() for series in several}
    _add_chunks(connection, several, sums)
    _add_loose(connection, several, sums)
    return [
        SeriesSummary(
            series.key,
            series.source,
            series.points,
            (found := sums[series.id]).nonfinite,
            found.minimum,
            found.maximum,
            found.total,
            *series.newest,
        )
        for series in several
    ]


def _add_chunks(connection: sqlite3.Connection, several: list[SeriesRow], sums: dict[int, _Sums]) -> None:
    """Adds what is packed, chunk by chunk."""
    found: Counter[tuple[int, int]] = Counter()
    rows = connection.execute(
        "SELECT series_id, key_set_id, number, rows, nonfinite, minimum, maximum, total, first, last,"  # noqa: S608 - no part of it comes from outside
        f" {'summary_checksum' if are_kept(connection) else 'NULL'} FROM chunk"
        " WHERE series_id IN (SELECT value FROM json_each(?))",
        (json.dumps([series.id for series in several]),),
    )
    for series_id, key_set_id, number, count, nonfinite, *figures, expected in rows:
        if expected is not None and expected != summary_checksum(
            (series_id, key_set_id, number, count, nonfinite), figures
        ):
            raise DamagedRowError("a row of the table chunk is not what was written")
        found[series_id, key_set_id] += 1
        minimum, maximum, total, _, _ = figures
        sums[series_id].add(nonfinite, minimum, maximum, total)
    for series in several:
        for key_set, _ in series.key_sets:
            check_count("chunk", found[series.id, key_set.id], key_set.blocks)


def _add_loose(connection: sqlite3.Connection, several: list[SeriesRow], sums: dict[int, _Sums]) -> None:
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
                sums[series_id].add(*summed)


def _summed(columns: NDArray[np.float64]) -> Iterable[tuple[int, float | None, float | None, float]]:
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
        is_any_finite = minimum <= maximum
        yield nonfinite, minimum if is_any_finite else None, maximum if is_any_finite else None, total
