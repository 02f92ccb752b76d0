"""Reads the newest rows of some keys, which costs the same however long a run has gone on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from stepscope.schema.series import Points
from stepscope.store.checksums import check, columns_for, head
from stepscope.store.chunks import unpack_floats, unpack_ints
from stepscope.store.series_rows import loose_rows, read_series

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from stepscope.schema.series import Source
    from stepscope.store.series_rows import KeySetRow

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Piece = tuple[Ints, Ints, Floats]
    """Steps, times, and the values of a key, or a column of values for each of several."""


@dataclass(frozen=True)
class _Asked:
    """A key set that holds some of the keys asked for."""

    row: KeySetRow
    columns: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The series and the position of each of these keys."""


def read_newest(
    connection: sqlite3.Connection, run_id: str, segment: str, keys: Sequence[str], rows: int
) -> dict[Source, dict[str, Points]]:
    """The newest points of each key, at most so many, by where they come from and in order of time."""
    found: dict[Source, dict[str, list[Piece]]] = {}
    for source, asked in _key_sets(connection, run_id, segment, keys):
        steps, times, values = _newest_rows(connection, asked, rows)
        of_source = found.setdefault(source, {})
        for place, key in enumerate(asked.columns):
            of_source.setdefault(key, []).append((steps, times, values[:, place]))
    return {
        source: {key: _joined(pieces, rows) for key, pieces in of_source.items()}
        for source, of_source in found.items()
    }


def _key_sets(
    connection: sqlite3.Connection, run_id: str, segment: str, keys: Sequence[str]
) -> list[tuple[Source, _Asked]]:
    found: dict[int, tuple[Source, _Asked]] = {}
    members = [
        (key_set, position, series)
        for series in read_series(connection, run_id, keys=keys, segment=segment)
        for key_set, position in series.key_sets
    ]
    for key_set, position, series in sorted(members, key=lambda one: (one[0].id, one[1])):
        _, asked = found.setdefault(key_set.id, (series.source, _Asked(key_set)))
        asked.columns[series.key] = (series.id, position)
    return list(found.values())


def _newest_rows(connection: sqlite3.Connection, asked: _Asked, rows: int) -> Piece:
    pieces: list[Piece] = []
    have = 0
    places = [2 + position for _, position in asked.columns.values()]
    for piece in reversed(loose_rows(connection, asked.row.id, len(asked.row.keys), asked.row.loose)):
        loose = piece[have - rows :]
        bits = loose.view(np.int64)
        pieces.append((bits[:, 0], bits[:, 1], loose[:, places]))
        have += len(loose)
        if have >= rows:
            break
    number = asked.row.blocks
    while have < rows and number > 0:
        number -= 1
        pieces.append(_block(connection, asked, number))
        have += len(pieces[-1][0])
    if not pieces:
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty((0, len(places)))
    steps, times, values = zip(*reversed(pieces), strict=True)
    return np.concatenate(steps)[-rows:], np.concatenate(times)[-rows:], np.concatenate(values)[-rows:]


def _block(connection: sqlite3.Connection, asked: _Asked, number: int) -> Piece:
    count, steps, times, found = connection.execute(
        f"SELECT rows, steps, times, {columns_for(connection, 'block')} FROM block"  # noqa: S608 - no part of it comes from outside
        " WHERE key_set_id = ? AND number = ?",
        (asked.row.id, number),
    ).fetchone()
    check("block", found, asked.row.id, number, count, head(steps), head(times))
    values = np.empty((count, len(asked.columns)), order="F")
    for place, (series_id, _) in enumerate(asked.columns.values()):
        packed, found = connection.execute(
            f"SELECT data, {columns_for(connection, 'chunk')} FROM chunk"  # noqa: S608 - no part of it comes from outside
            " WHERE series_id = ? AND key_set_id = ? AND number = ?",
            (series_id, asked.row.id, number),
        ).fetchone()
        check("chunk", found, series_id, asked.row.id, number, count, head(packed))
        values[:, place] = unpack_floats(packed, count)
    return unpack_ints(steps, count), unpack_ints(times, count), values


def _joined(pieces: list[Piece], rows: int) -> Points:
    """Points of several key sets in the order of time; the newest of them."""
    if len(pieces) == 1:
        steps, times, values = pieces[0]
        return Points(steps, values, lambda: times)
    steps, times, values = (np.concatenate(column) for column in zip(*pieces, strict=True))
    order = np.argsort(times, kind="stable")[-rows:]
    ordered = times[order]
    return Points(steps[order], values[order], lambda: ordered)
