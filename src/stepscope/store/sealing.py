"""Takes rows into the SQLite store: loose in the tail, then sealed into chunks and rollups."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from stepscope.schema.series import Source
from stepscope.store import rollup
from stepscope.store.chunks import pack_floats, pack_ints

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

BLOCK_ROWS = 4096
MOST_TAIL_PIECES = 64
FEWEST_ROWS = 256
"""Fewer rows than this stay loose for good: packed, they would take more room and more time."""
NS = 1_000_000_000

# As the unique indexes have it: a rank compared by IS would end the use of an index there.
_OF_SOURCE = "run_id = ? AND segment = ? AND coalesce(rank, -1) = coalesce(?, -1) AND host = ? AND device = ?"


@dataclass
class KeySet:
    """The rows of one key set of one source that are not sealed yet, and where they belong."""

    id: int
    source: Source
    series_ids: list[int]
    blocks: int
    loose: list[NDArray[np.float64]] = field(default_factory=list)
    """Pieces of rows as float64 bits: step, time, values."""
    rows: int = 0
    """How many rows are loose."""
    pieces: int = 0
    """How many rows of the tail table hold them."""

    def set_loose(self, pieces: list[NDArray[np.float64]]) -> None:
        """Says which rows are loose."""
        self.loose, self.rows = pieces, sum(map(len, pieces))


class Sealer:
    """Writes points for the one connection that may write."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._sets: dict[tuple[Source, tuple[str, ...]], KeySet] = {}

    def append(self, source: Source, keys: Sequence[str], steps: Ints, times: Ints, values: Floats) -> None:
        """Adds rows: whole blocks are sealed at once, the rest goes to the tail."""
        if len(steps) == 0:
            return
        if len(set(keys)) < len(keys):
            self._append_namesakes(source, keys, steps, times, values)
            return
        key_set = self._key_set(source, tuple(keys))
        rows = np.empty((len(steps), len(keys) + 2))
        rows[:, 0] = steps.view(np.float64)
        rows[:, 1] = times.view(np.float64)
        rows[:, 2:] = values
        key_set.loose.append(rows)
        key_set.rows += len(rows)
        if key_set.rows >= BLOCK_ROWS:
            self._seal_blocks(key_set, least=BLOCK_ROWS)
        else:
            self._put_tail(key_set, rows)
        self._count(key_set, steps, times, values)

    def seal(self, source: Source) -> None:
        """Seals what a source that has ended left loose, and forgets its key sets."""
        place = _labels(source)
        # Asked of the file: an agent that came after another has never met some of these sets.
        loose = self._connection.execute(
            f"SELECT axis, keys FROM key_set WHERE {_OF_SOURCE}"  # noqa: S608 - no part of it comes from outside
            " AND EXISTS (SELECT 1 FROM tail WHERE key_set_id = key_set.id)",
            place,
        ).fetchall()
        for axis, keys in loose:
            key_set = self._key_set(Source(*place, axis), tuple(json.loads(keys)))
            if key_set.rows >= FEWEST_ROWS:
                self._seal_blocks(key_set, least=1)
            else:
                self._join_tail(key_set)
        for known in [one for one in self._sets if _labels(one[0]) == place]:
            del self._sets[known]

    def forget(self) -> None:
        """Drops what is remembered of the file, when a transaction failed or a run was deleted."""
        self._sets.clear()

    def _append_namesakes(
        self, source: Source, keys: Sequence[str], steps: Ints, times: Ints, values: Floats
    ) -> None:
        """Adds rows in which a key comes twice, as the keys 1 and "1" do: each column is kept."""
        first = [at for at, key in enumerate(keys) if key not in keys[:at]]
        again = [at for at in range(len(keys)) if at not in first]
        for columns in (first, again):
            self.append(source, [keys[at] for at in columns], steps, times, values[:, columns])

    def _key_set(self, source: Source, keys: tuple[str, ...]) -> KeySet:
        known = self._sets.get((source, keys))
        if known is None:
            known = self._sets[source, keys] = self._load(source, keys) or self._create(source, keys)
        return known

    def _load(self, source: Source, keys: tuple[str, ...]) -> KeySet | None:
        row = self._connection.execute(
            f"SELECT id, blocks FROM key_set WHERE {_OF_SOURCE} AND axis = ? AND keys = ?",  # noqa: S608 - nor here
            (*_labels(source), source.axis, json.dumps(keys)),
        ).fetchone()
        if row is None:
            return None
        members = self._connection.execute(
            "SELECT series_id FROM member WHERE key_set_id = ? ORDER BY position", row[:1]
        )
        found = KeySet(row[0], source, [one for (one,) in members], row[1])
        found.set_loose(loose_rows(self._connection, found.id, len(keys)))
        found.pieces = len(found.loose)
        return found

    def _create(self, source: Source, keys: tuple[str, ...]) -> KeySet:
        cursor = self._connection.execute(
            "INSERT INTO key_set (run_id, segment, rank, host, device, axis, keys)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (*_labels(source), source.axis, json.dumps(keys)),
        )
        made = KeySet(int(cursor.lastrowid or 0), source, [], 0)
        for position, key in enumerate(keys):
            self._connection.execute(
                "INSERT OR IGNORE INTO series (run_id, segment, rank, host, device, axis, key)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                (*_labels(source), source.axis, key),
            )
            (series_id,) = self._connection.execute(
                f"SELECT id FROM series WHERE {_OF_SOURCE} AND axis = ? AND key = ?",  # noqa: S608 - nor here
                (*_labels(source), source.axis, key),
            ).fetchone()
            made.series_ids.append(series_id)
            self._connection.execute("INSERT INTO member VALUES (?, ?, ?)", (series_id, made.id, position))
        return made

    def _put_tail(self, key_set: KeySet, rows: Floats) -> None:
        self._connection.execute(
            "INSERT INTO tail (key_set_id, rows, data) VALUES (?, ?, ?)",
            (key_set.id, len(rows), rows.tobytes()),
        )
        key_set.pieces += 1
        if key_set.pieces > MOST_TAIL_PIECES:
            self._join_tail(key_set)

    def _join_tail(self, key_set: KeySet) -> None:
        """Makes one piece of many."""
        if key_set.pieces > 1:
            rows = np.concatenate(key_set.loose)
            self._connection.execute("DELETE FROM tail WHERE key_set_id = ?", (key_set.id,))
            key_set.set_loose([rows])
            key_set.pieces = 0
            self._put_tail(key_set, rows)

    def _seal_blocks(self, key_set: KeySet, least: int) -> None:
        rows = np.concatenate(key_set.loose)
        if key_set.pieces:
            self._connection.execute("DELETE FROM tail WHERE key_set_id = ?", (key_set.id,))
        key_set.set_loose([])
        key_set.pieces = 0
        at = 0
        while len(rows) - at >= least:
            self._seal_block(key_set, rows[at : at + BLOCK_ROWS])
            at += BLOCK_ROWS
        self._connection.execute("UPDATE key_set SET blocks = ? WHERE id = ?", (key_set.blocks, key_set.id))
        if at < len(rows):
            rest = rows[at:].copy()
            key_set.set_loose([rest])
            self._put_tail(key_set, rest)

    def _seal_block(self, key_set: KeySet, rows: Floats) -> None:
        bits = rows.view(np.int64)
        steps, times = np.ascontiguousarray(bits[:, 0]), np.ascontiguousarray(bits[:, 1])
        values = np.asfortranarray(rows[:, 2:])
        number = key_set.blocks
        self._connection.execute(
            "INSERT INTO block VALUES (?, ?, ?, ?, ?)",
            (key_set.id, number, len(rows), pack_ints(steps), pack_ints(times)),
        )
        x = steps if key_set.source.axis == "step" else times // NS
        low, high = int(x.min()), int(x.max())
        rolled = rollup.roll_up(x, times, values, rollup.exponent_for(low, high, rollup.NODE_BUCKETS))
        self._put_chunks(key_set, values, rolled)
        self._put_node(key_set, 1, number, (low, high), rolled)
        key_set.blocks += 1
        self._close_levels(key_set, number)

    def _put_chunks(self, key_set: KeySet, values: Floats, rolled: rollup.Rollup) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            total = rolled.total.sum(axis=0)
        self._connection.executemany(
            "INSERT INTO chunk VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    series_id,
                    key_set.id,
                    key_set.blocks,
                    len(values),
                    _least(rolled.minimum[:, column]),
                    _greatest(rolled.maximum[:, column]),
                    float(total[column]),
                    float(values[0, column]),
                    float(values[-1, column]),
                    int(rolled.nonfinite[:, column].sum()),
                    pack_floats(values[:, column]),
                )
                for column, series_id in enumerate(key_set.series_ids)
            ],
        )

    def _put_node(
        self,
        key_set: KeySet,
        level: int,
        number: int,
        reach: tuple[int, int],
        rolled: rollup.Rollup,
    ) -> None:
        axis = rollup.pack_axis(rolled)
        cursor = self._connection.execute(
            "INSERT INTO node (key_set_id, level, number, low, high, exponent, buckets,"
            " starts, counts, times) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                key_set.id,
                level,
                number,
                *reach,
                rolled.exponent,
                len(rolled.index),
                *axis,
            ),
        )
        self._connection.executemany(
            "INSERT INTO rollup VALUES (?, ?, ?)",
            [
                (series_id, cursor.lastrowid, rollup.pack_column(rolled, column))
                for column, series_id in enumerate(key_set.series_ids)
            ],
        )

    def _close_levels(self, key_set: KeySet, number: int) -> None:
        """Makes the node above when the last of its children has come, and so on upwards."""
        level = 1
        while (number + 1) % rollup.FAN_OUT == 0:
            number //= rollup.FAN_OUT
            level += 1
            self._put_parent(key_set, level, number)

    def _put_parent(self, key_set: KeySet, level: int, number: int) -> None:
        first = number * rollup.FAN_OUT
        children = self._connection.execute(
            "SELECT id, low, high, exponent, buckets, starts, counts, times FROM node"
            " WHERE key_set_id = ? AND level = ? AND number >= ? AND number < ? ORDER BY number",
            (key_set.id, level - 1, first, first + rollup.FAN_OUT),
        ).fetchall()
        parts = []
        for node_id, _, _, exponent, buckets, *axis in children:
            found = dict(
                self._connection.execute(
                    "SELECT series_id, data FROM rollup WHERE node_id = ?", (node_id,)
                ).fetchall()
            )
            columns = [
                rollup.unpack_column(exponent, buckets, axis, found[series_id])
                for series_id in key_set.series_ids
            ]
            parts.append(rollup.beside(columns))
        low, high = min(row[1] for row in children), max(row[2] for row in children)
        widest = max(part.exponent for part in parts)
        exponent = max(widest, rollup.exponent_for(low, high, rollup.NODE_BUCKETS))
        self._put_node(key_set, level, number, (low, high), rollup.merge(parts, exponent))

    def _count(self, key_set: KeySet, steps: Ints, times: Ints, values: Floats) -> None:
        self._connection.executemany(
            "UPDATE series SET points = points + ?, last = ?, last_step = ?, last_ns = ? WHERE id = ?",
            [
                (len(values), float(values[-1, column]), int(steps[-1]), int(times[-1]), series_id)
                for column, series_id in enumerate(key_set.series_ids)
            ],
        )


def loose_rows(connection: sqlite3.Connection, key_set_id: int, keys: int) -> list[Floats]:
    """The pieces of a key set's tail, in order."""
    rows = connection.execute("SELECT data FROM tail WHERE key_set_id = ? ORDER BY id", (key_set_id,))
    return [np.frombuffer(data).reshape(-1, keys + 2) for (data,) in rows]


def _labels(source: Source) -> tuple[str, str, int | None, str, str]:
    return source.run_id, source.segment, source.rank, source.host, source.device


def _least(values: Floats) -> float | None:
    return float(np.fmin.reduce(values)) if np.isfinite(values).any() else None


def _greatest(values: Floats) -> float | None:
    return float(np.fmax.reduce(values)) if np.isfinite(values).any() else None
