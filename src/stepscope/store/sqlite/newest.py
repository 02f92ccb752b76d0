"""Reads the newest rows of some keys, at a cost that does not grow with the length of the run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from stepscope.schema.series import Points
from stepscope.store.chunks import unpack_floats, unpack_ints
from stepscope.store.sqlite.checksums import check, checksum_columns, head
from stepscope.store.sqlite.series_rows import read_series, read_tail

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from stepscope.schema.series import Source
    from stepscope.store.sqlite.series_rows import KeySetRow

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Piece = tuple[Ints, Ints, Floats]
    """Steps, times, and the values of a key, or a column of values for each of several."""


@dataclass(frozen=True)
class _SelectedKeySet:
    """A key set that contains some of the requested keys."""

    key_set: KeySetRow
    columns: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The series and the position of each of these keys."""


def read_newest(
    connection: sqlite3.Connection, run_id: str, segment: str, keys: Sequence[str], rows: int
) -> dict[Source, dict[str, Points]]:
    """The newest points of each key, at most `rows`, by source and in order of time."""
    pieces_by_source: dict[Source, dict[str, list[Piece]]] = {}
    for source, selected in _key_sets(connection, run_id, segment, keys):
        steps, times, values = _newest_rows(connection, selected, rows)
        pieces_by_key = pieces_by_source.setdefault(source, {})
        for column, key in enumerate(selected.columns):
            pieces_by_key.setdefault(key, []).append((steps, times, values[:, column]))
    return {
        source: {key: _joined(pieces, rows) for key, pieces in pieces_by_key.items()}
        for source, pieces_by_key in pieces_by_source.items()
    }


def _key_sets(
    connection: sqlite3.Connection, run_id: str, segment: str, keys: Sequence[str]
) -> list[tuple[Source, _SelectedKeySet]]:
    selected: dict[int, tuple[Source, _SelectedKeySet]] = {}
    members = [
        (key_set, position, series)
        for series in read_series(connection, run_id, keys=keys, segment=segment)
        for key_set, position in series.key_sets
    ]
    for key_set, position, series in sorted(members, key=lambda member: (member[0].id, member[1])):
        _, key_set_keys = selected.setdefault(key_set.id, (series.source, _SelectedKeySet(key_set)))
        key_set_keys.columns[series.key] = (series.id, position)
    return list(selected.values())


def _newest_rows(connection: sqlite3.Connection, selected: _SelectedKeySet, rows: int) -> Piece:
    pieces: list[Piece] = []
    count = 0
    columns = [2 + position for _, position in selected.columns.values()]
    for piece in reversed(
        read_tail(connection, selected.key_set.id, len(selected.key_set.keys), selected.key_set.unsealed)
    ):
        tail_rows = piece[count - rows :]
        bits = tail_rows.view(np.int64)
        pieces.append((bits[:, 0], bits[:, 1], tail_rows[:, columns]))
        count += len(tail_rows)
        if count >= rows:
            break
    number = selected.key_set.blocks
    while count < rows and number > 0:
        number -= 1
        pieces.append(_block(connection, selected, number))
        count += len(pieces[-1][0])
    if not pieces:
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty((0, len(columns)))
    steps, times, values = zip(*reversed(pieces), strict=True)
    return np.concatenate(steps)[-rows:], np.concatenate(times)[-rows:], np.concatenate(values)[-rows:]


def _block(connection: sqlite3.Connection, selected: _SelectedKeySet, number: int) -> Piece:
    count, steps, times, expected = connection.execute(
        f"SELECT rows, steps, times, {checksum_columns(connection, 'block')} FROM block"  # noqa: S608 - no part of it comes from outside
        " WHERE key_set_id = ? AND number = ?",
        (selected.key_set.id, number),
    ).fetchone()
    check("block", expected, selected.key_set.id, number, count, head(steps), head(times))
    values = np.empty((count, len(selected.columns)), order="F")
    for column, (series_id, _) in enumerate(selected.columns.values()):
        packed, expected = connection.execute(
            f"SELECT data, {checksum_columns(connection, 'chunk')} FROM chunk"  # noqa: S608 - no part of it comes from outside
            " WHERE series_id = ? AND key_set_id = ? AND number = ?",
            (series_id, selected.key_set.id, number),
        ).fetchone()
        check("chunk", expected, series_id, selected.key_set.id, number, count, head(packed))
        values[:, column] = unpack_floats(packed, count)
    return unpack_ints(steps, count), unpack_ints(times, count), values


def _joined(pieces: list[Piece], rows: int) -> Points:
    """The newest points of several key sets, in order of time."""
    if len(pieces) == 1:
        steps, times, values = pieces[0]
        return Points(steps, values, lambda: times)
    steps, times, values = (np.concatenate(column) for column in zip(*pieces, strict=True))
    order = np.argsort(times, kind="stable")[-rows:]
    ordered = times[order]
    return Points(steps[order], values[order], lambda: ordered)
