"""Reads the newest rows of some keys, which costs the same however long a run has gone on."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from stepscope.schema.series import Points, Source
from stepscope.store.checksums import are_kept, check, columns_for, head
from stepscope.store.chunks import unpack_floats, unpack_ints
from stepscope.store.sealing import loose_rows

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Piece = tuple[Ints, Ints, Floats]
    """Steps, times, and the values of a key, or a column of values for each of several."""


@dataclass(frozen=True)
class _KeySet:
    """A key set that holds some of the keys asked for."""

    id: int
    width: int
    blocks: int
    loose: int | None
    """Rows that are not in blocks; None where nobody counted."""
    columns: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The series and the position of each of these keys."""


def read_newest(
    connection: sqlite3.Connection, run_id: str, segment: str, keys: Sequence[str], rows: int
) -> dict[Source, dict[str, Points]]:
    """The newest points of each key, at most so many, by where they come from and in order of time."""
    found: dict[Source, dict[str, list[Piece]]] = {}
    for source, key_set in _key_sets(connection, run_id, segment, keys):
        steps, times, values = _newest_rows(connection, key_set, rows)
        of_source = found.setdefault(source, {})
        for place, key in enumerate(key_set.columns):
            of_source.setdefault(key, []).append((steps, times, values[:, place]))
    return {
        source: {key: _joined(pieces, rows) for key, pieces in of_source.items()}
        for source, of_source in found.items()
    }


def _key_sets(
    connection: sqlite3.Connection, run_id: str, segment: str, keys: Sequence[str]
) -> list[tuple[Source, _KeySet]]:
    counts = "key_set.rows - key_set.sealed" if are_kept(connection) else "NULL"
    rows = connection.execute(
        "SELECT key_set.id, key_set.rank, key_set.host, key_set.device, key_set.axis, key_set.keys,"  # noqa: S608 - no part of it comes from outside
        f" key_set.blocks, series.key, series.id, member.position, {counts} FROM series"
        " JOIN member ON member.series_id = series.id JOIN key_set ON key_set.id = member.key_set_id"
        " WHERE series.run_id = ? AND series.key IN (SELECT value FROM json_each(?)) AND series.segment = ?"
        " ORDER BY key_set.id, member.position",
        (run_id, json.dumps(keys), segment),
    )
    found: dict[int, tuple[Source, _KeySet]] = {}
    for number, rank, host, device, axis, listed, blocks, key, series_id, position, loose in rows:
        if number not in found:
            source = Source(run_id, segment, rank, host, device, axis)
            found[number] = (source, _KeySet(number, len(json.loads(listed)), blocks, loose))
        found[number][1].columns[key] = (series_id, position)
    return list(found.values())


def _newest_rows(connection: sqlite3.Connection, key_set: _KeySet, rows: int) -> Piece:
    pieces: list[Piece] = []
    have = 0
    places = [2 + position for _, position in key_set.columns.values()]
    for piece in reversed(loose_rows(connection, key_set.id, key_set.width, key_set.loose)):
        loose = piece[have - rows :]
        bits = loose.view(np.int64)
        pieces.append((bits[:, 0], bits[:, 1], loose[:, places]))
        have += len(loose)
        if have >= rows:
            break
    number = key_set.blocks
    while have < rows and number > 0:
        number -= 1
        pieces.append(_block(connection, key_set, number))
        have += len(pieces[-1][0])
    if not pieces:
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty((0, len(places)))
    steps, times, values = zip(*reversed(pieces), strict=True)
    return np.concatenate(steps)[-rows:], np.concatenate(times)[-rows:], np.concatenate(values)[-rows:]


def _block(connection: sqlite3.Connection, key_set: _KeySet, number: int) -> Piece:
    count, steps, times, found = connection.execute(
        f"SELECT rows, steps, times, {columns_for(connection, 'block')} FROM block"  # noqa: S608 - no part of it comes from outside
        " WHERE key_set_id = ? AND number = ?",
        (key_set.id, number),
    ).fetchone()
    check("block", found, key_set.id, number, count, head(steps), head(times))
    values = np.empty((count, len(key_set.columns)), order="F")
    for place, (series_id, _) in enumerate(key_set.columns.values()):
        packed, found = connection.execute(
            f"SELECT data, {columns_for(connection, 'chunk')} FROM chunk"  # noqa: S608 - no part of it comes from outside
            " WHERE series_id = ? AND key_set_id = ? AND number = ?",
            (series_id, key_set.id, number),
        ).fetchone()
        check("chunk", found, series_id, key_set.id, number, count, head(packed))
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
