"""Takes rows into the SQLite store: loose in the tail, then sealed into chunks and rollups."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from stepscope.schema.series import Source
from stepscope.store import rollup
from stepscope.store.checksums import check, check_count, checksum, columns_for, head, stored
from stepscope.store.chunks import pack_floats, pack_ints
from stepscope.store.series_rows import LABELS, key_set_row

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
    keys: str
    """Its keys as the table has them."""
    total: int = 0
    """How many rows it has, sealed or not."""
    loose: list[NDArray[np.float64]] = field(default_factory=list)
    """Pieces of rows as float64 bits: step, time, values."""
    rows: int = 0
    """How many rows are loose."""
    pieces: int = 0
    """How many rows of the tail table hold them."""

    def set_loose(self, pieces: list[NDArray[np.float64]]) -> None:
        """Says which rows are loose."""
        self.loose, self.rows = pieces, sum(map(len, pieces))


@dataclass
class _Series:
    """What is remembered of a series between two appends."""

    labels: int
    """The checksum of its labels."""
    points: int


class Sealer:
    """Writes points for the one connection that may write."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._sets: dict[tuple[Source, tuple[str, ...]], KeySet] = {}
        self._series: dict[int, _Series] = {}

    def append(self, source: Source, keys: Sequence[str], steps: Ints, times: Ints, values: Floats) -> None:
        """Adds rows: whole blocks are sealed at once, the rest goes to the tail."""
        if len(steps) == 0:
            return
        place = (source, tuple(keys))
        key_set = self._sets.get(place)
        if key_set is None:
            if len(set(keys)) < len(keys):
                self._append_namesakes(source, keys, steps, times, values)
                return
            key_set = self._key_set(*place)
        rows = np.empty((len(steps), len(keys) + 2))
        rows[:, 0] = steps.view(np.float64)
        rows[:, 1] = times.view(np.float64)
        rows[:, 2:] = values
        key_set.loose.append(rows)
        key_set.rows += len(rows)
        key_set.total += len(rows)
        if key_set.rows >= BLOCK_ROWS:
            self._seal_blocks(key_set, least=BLOCK_ROWS)
        else:
            self._put_tail(key_set, rows)
        self._note_key_set(key_set)
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
                self._note_key_set(key_set)
            else:
                self._join_tail(key_set)
        for known in [one for one in self._sets if _labels(one[0]) == place]:
            for series_id in self._sets.pop(known).series_ids:
                self._series.pop(series_id, None)

    def forget(self) -> None:
        """Drops what is remembered of the file, when a transaction failed or a run was deleted."""
        self._sets.clear()
        self._series.clear()

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
            f"SELECT id, blocks, rows, sealed FROM key_set WHERE {_OF_SOURCE} AND axis = ? AND keys = ?",  # noqa: S608 - nor here
            (*_labels(source), source.axis, json.dumps(keys)),
        ).fetchone()
        if row is None:
            return None
        number, blocks, total, sealed = row
        members = self._connection.execute(
            "SELECT series_id FROM member WHERE key_set_id = ? ORDER BY position", (number,)
        )
        found = KeySet(number, source, [one for (one,) in members], blocks, json.dumps(keys))
        loose = None if total is None or sealed is None else total - sealed
        found.set_loose(loose_rows(self._connection, found.id, len(keys), loose))
        found.pieces = len(found.loose)
        found.total = self._sealed_rows(number) + found.rows if total is None else total
        return found

    def _sealed_rows(self, key_set_id: int) -> int:
        """How many rows the blocks of a set have that an older version wrote, which did not count them."""
        (rows,) = self._connection.execute(
            "SELECT coalesce(sum(rows), 0) FROM block WHERE key_set_id = ?", (key_set_id,)
        ).fetchone()
        return int(rows)

    def _create(self, source: Source, keys: tuple[str, ...]) -> KeySet:
        cursor = self._connection.execute(
            "INSERT INTO key_set (run_id, segment, rank, host, device, axis, keys)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (*_labels(source), source.axis, json.dumps(keys)),
        )
        made = KeySet(int(cursor.lastrowid or 0), source, [], 0, json.dumps(keys))
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
        data = rows.tobytes()
        self._connection.execute(
            "INSERT INTO tail (key_set_id, rows, data, checksum) VALUES (?, ?, ?, ?)",
            (key_set.id, len(rows), data, checksum(key_set.id, key_set.pieces, len(rows), crc32(data))),
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
        if at < len(rows):
            rest = rows[at:].copy()
            key_set.set_loose([rest])
            self._put_tail(key_set, rest)

    def _seal_block(self, key_set: KeySet, rows: Floats) -> None:
        bits = rows.view(np.int64)
        steps, times = np.ascontiguousarray(bits[:, 0]), np.ascontiguousarray(bits[:, 1])
        values = np.asfortranarray(rows[:, 2:])
        number = key_set.blocks
        block = (key_set.id, number, len(rows))
        packed_steps, packed_times = pack_ints(steps), pack_ints(times)
        self._connection.execute(
            "INSERT INTO block VALUES (?, ?, ?, ?, ?, ?)",
            (*block, packed_steps, packed_times, checksum(*block, head(packed_steps), head(packed_times))),
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
            "INSERT INTO chunk VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    *(place := (series_id, key_set.id, key_set.blocks, len(values))),
                    _least(rolled.minimum[:, column]),
                    _greatest(rolled.maximum[:, column]),
                    float(total[column]),
                    float(values[0, column]),
                    float(values[-1, column]),
                    int(rolled.nonfinite[:, column].sum()),
                    packed := pack_floats(values[:, column]),
                    checksum(*place, head(packed)),
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
        place = (key_set.id, level, number)
        node = (*place, *reach, rolled.exponent, len(rolled.index))
        cursor = self._connection.execute(
            "INSERT INTO node (key_set_id, level, number, low, high, exponent, buckets,"
            " starts, counts, times, checksum) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*node, *axis, checksum(*node, *map(crc32, axis))),
        )
        columns = [rollup.pack_column(rolled, column) for column in range(len(key_set.series_ids))]
        self._connection.executemany(
            "INSERT INTO rollup VALUES (?, ?, ?, ?)",
            [
                (series_id, cursor.lastrowid, data, checksum(series_id, *place, crc32(data)))
                for series_id, data in zip(key_set.series_ids, columns, strict=True)
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
            "SELECT id, number, low, high, exponent, buckets, starts, counts, times, checksum FROM node"
            " WHERE key_set_id = ? AND level = ? AND number >= ? AND number < ? ORDER BY number",
            (key_set.id, level - 1, first, first + rollup.FAN_OUT),
        ).fetchall()
        parts = []
        check_count("node", len(children), rollup.FAN_OUT)
        for node_id, *node, starts, counts, times, expected in children:
            axis = (starts, counts, times)
            check("node", expected, key_set.id, level - 1, *node, *map(crc32, axis))
            number_below, _, _, exponent, buckets = node
            place = (key_set.id, level - 1, number_below)
            packed = self._rollups_of(node_id, place)
            columns = [
                rollup.unpack_column(exponent, buckets, axis, packed[series_id])
                for series_id in key_set.series_ids
            ]
            parts.append(rollup.beside(columns))
        low, high = min(row[2] for row in children), max(row[3] for row in children)
        widest = max(part.exponent for part in parts)
        exponent = max(widest, rollup.exponent_for(low, high, rollup.NODE_BUCKETS))
        self._put_node(key_set, level, number, (low, high), rollup.merge(parts, exponent))

    def _rollups_of(self, node_id: int, place: tuple[int, int, int]) -> dict[int, bytes]:
        """The packed buckets of a node by series."""
        found = {}
        for series_id, data, expected in self._connection.execute(
            "SELECT series_id, data, checksum FROM rollup WHERE node_id = ?", (node_id,)
        ):
            check("rollup", expected, series_id, *place, crc32(data))
            found[series_id] = data
        return found

    def _count(self, key_set: KeySet, steps: Ints, times: Ints, values: Floats) -> None:
        last_step, last_ns = int(steps[-1]), int(times[-1])
        rows = []
        for series_id, last in zip(key_set.series_ids, values[-1].tolist(), strict=True):
            series = self._series.get(series_id) or self._load_series(series_id)
            series.points += len(values)
            counters = (series.points, stored(last), last_step, last_ns)
            rows.append((*counters, checksum(*counters, start=series.labels), series_id))
        self._connection.executemany(
            "UPDATE series SET points = ?, last = ?, last_step = ?, last_ns = ?, checksum = ? WHERE id = ?",
            rows,
        )

    def _load_series(self, series_id: int) -> _Series:
        *labels, points = self._connection.execute(
            f"SELECT {LABELS}, points FROM series WHERE id = ?",  # noqa: S608 - nor here
            (series_id,),
        ).fetchone()
        found = self._series[series_id] = _Series(checksum(*labels), points)
        return found

    def _note_key_set(self, key_set: KeySet) -> None:
        """Notes how many rows a set has, and how many of them are in blocks."""
        counts = (key_set.blocks, key_set.total, key_set.total - key_set.rows)
        row = key_set_row(key_set.id, key_set.keys, key_set.source.axis, *counts)
        self._connection.execute(
            "UPDATE key_set SET blocks = ?, rows = ?, sealed = ?, checksum = ? WHERE id = ?",
            (*counts, checksum(*row), key_set.id),
        )


def loose_rows(
    connection: sqlite3.Connection, key_set_id: int, keys: int, expected: int | None
) -> list[Floats]:
    """The pieces of a key set's tail, in order; checked to be so many rows, where that is known."""
    rows = connection.execute(
        f"SELECT rows, data, {columns_for(connection, 'tail')} FROM tail WHERE key_set_id = ? ORDER BY id",  # noqa: S608 - nor here
        (key_set_id,),
    ).fetchall()
    for place, (count, data, found) in enumerate(rows):
        check("tail", found, key_set_id, place, count, crc32(data))
    check_count("tail", sum(count for count, _, _ in rows), expected)
    return [np.frombuffer(data).reshape(-1, keys + 2) for _, data, _ in rows]


def _labels(source: Source) -> tuple[str, str, int | None, str, str]:
    return source.run_id, source.segment, source.rank, source.host, source.device


def _least(values: Floats) -> float | None:
    return float(np.fmin.reduce(values)) if np.isfinite(values).any() else None


def _greatest(values: Floats) -> float | None:
    return float(np.fmax.reduce(values)) if np.isfinite(values).any() else None
