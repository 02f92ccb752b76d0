"""Sums series of the SQLite store up: least, greatest, sum and newest value, without unpacking chunks."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from stepscope.schema.series import Source
from stepscope.store.base import SeriesSummary
from stepscope.store.sealing import loose_rows

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterable, Sequence

    from numpy.typing import NDArray

MOST_ASKED = 500
"""Series that one question is about."""

_SUMMED = (
    "SELECT series.id, key, segment, rank, host, device, axis, points, series.last, last_step, last_ns,"
    " coalesce(sum(rows), 0), coalesce(sum(nonfinite), 0), min(minimum), max(maximum),"
    " coalesce(sum(total), 0) FROM series LEFT JOIN chunk ON chunk.series_id = series.id WHERE run_id = ?"
)


def read_summaries(
    connection: sqlite3.Connection, run_id: str, keys: Collection[str] | None
) -> list[SeriesSummary]:
    """Every series of a run, or those of some keys, summed up; in the order they were first met."""
    if keys is not None and not keys:
        return []
    query, values = _SUMMED, [run_id]
    if keys is not None:
        query += f" AND key IN ({', '.join('?' * len(keys))})"
        values += keys
    rows = connection.execute(f"{query} GROUP BY series.id ORDER BY series.id", values).fetchall()
    found: dict[int, SeriesSummary] = {}
    loose: list[int] = []
    for number, key, segment, rank, host, device, axis, points, *sums in rows:
        last, last_step, last_ns, packed, nonfinite, minimum, maximum, total = sums
        source = Source(run_id, segment, rank, host, device, axis)
        found[number] = SeriesSummary(
            key, source, points, nonfinite, minimum, maximum, total or 0.0, last, last_step, last_ns
        )
        if points > packed:
            loose.append(number)
    if loose:
        _add_loose(connection, found, loose)
    return list(found.values())


def _add_loose(
    connection: sqlite3.Connection, found: dict[int, SeriesSummary], numbers: Sequence[int]
) -> None:
    """Adds what is not packed yet, a key set at a time."""
    wanted: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for at in range(0, len(numbers), MOST_ASKED):
        asked = numbers[at : at + MOST_ASKED]
        marks = ", ".join("?" * len(asked))
        rows = connection.execute(
            "SELECT series_id, key_set.id, keys, position FROM member"  # noqa: S608 - question marks alone
            " JOIN key_set ON key_set.id = key_set_id"
            f" WHERE series_id IN ({marks})"
            " AND EXISTS (SELECT 1 FROM tail WHERE tail.key_set_id = key_set.id)",
            asked,
        )
        for number, key_set, keys, position in rows:
            wanted.setdefault((key_set, len(json.loads(keys))), []).append((number, position))
    for (key_set, width), members in wanted.items():
        rows_of_set = np.concatenate(loose_rows(connection, key_set, width, None))
        columns = rows_of_set[:, [2 + position for _, position in members]]
        for (number, _), summed in zip(members, _summed(columns), strict=True):
            found[number] = _added(found[number], *summed)


def _summed(columns: NDArray[np.float64]) -> Iterable[tuple[int, float, float, float]]:
    """How many are not finite, the least, the greatest and the sum of each column."""
    finite = np.isfinite(columns)
    least = greatest = known = columns
    if not finite.all():
        least, greatest = np.where(finite, columns, np.inf), np.where(finite, columns, -np.inf)
        known = np.where(finite, columns, 0.0)
    with np.errstate(over="ignore", invalid="ignore"):
        totals = known.sum(axis=0)
    return zip(
        (len(columns) - finite.sum(axis=0)).tolist(),
        least.min(axis=0).tolist(),
        greatest.max(axis=0).tolist(),
        totals.tolist(),
        strict=True,
    )


def _added(one: SeriesSummary, nonfinite: int, least: float, greatest: float, total: float) -> SeriesSummary:
    if least > greatest:  # none of them is finite
        return replace(one, nonfinite=one.nonfinite + nonfinite)
    return replace(
        one,
        nonfinite=one.nonfinite + nonfinite,
        minimum=least if one.minimum is None else min(one.minimum, least),
        maximum=greatest if one.maximum is None else max(one.maximum, greatest),
        total=one.total + total,
    )
