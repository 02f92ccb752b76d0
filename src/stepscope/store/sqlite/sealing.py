"""Writes rows into the SQLite store: first into the tail, then sealed into chunks and rollups."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from stepscope.schema.series import Source
from stepscope.store import rollup
from stepscope.store.chunks import pack_floats, pack_ints
from stepscope.store.sqlite.checksums import (
    check,
    check_count,
    checksum,
    head,
)
from stepscope.store.sqlite.series_rows import KeySetRow, Newest, key_set_checksum, read_tail, series_checksum
from stepscope.store.sqlite.summaries import Summary, add_to_summaries, write_member

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Labels = tuple[str, str, int | None, str, str]
    """Run, segment, rank, host and device of a source."""

BLOCK_ROWS = 4096
MAX_TAIL_PIECES = 64
MIN_ROWS = 256
"""Fewer rows than this stay in the tail for good: packed, they would take more space and time."""
COUNT_EVERY_S = 60.0
"""How often the counters of the table series are written; stepscope itself reads those of key sets."""
NS = 1_000_000_000

# The same expression as in the unique indexes: a rank compared with IS would not use the index.
_SOURCE_CONDITION = (
    "run_id = ? AND segment = ? AND coalesce(rank, -1) = coalesce(?, -1) AND host = ? AND device = ?"
)


@dataclass
class KeySet:
    """One key set of one source, with its rows that are not sealed yet."""

    id: int
    source: Source
    series_ids: list[int]
    blocks: int
    labels_checksum: int
    """The checksum of its labels."""
    total: int = 0
    """How many rows it has, sealed or not."""
    tail: list[NDArray[np.float64]] = field(default_factory=list)
    """Arrays of unsealed rows as float64 bits: step, time, values."""
    rows: int = 0
    """How many rows are not sealed."""
    pieces: int = 0
    """How many rows of the table tail contain them."""
    last: bytes | None = None
    """Its newest row."""

    def set_tail(self, pieces: list[NDArray[np.float64]]) -> None:
        """Sets the rows that are not sealed."""
        self.tail, self.rows = pieces, sum(map(len, pieces))


class Sealer:
    """Writes points for the one connection that may write."""

    def __init__(self, connection: sqlite3.Connection, now: Callable[[], float] = time.monotonic) -> None:
        self._connection, self._now = connection, now
        self._sets: dict[Labels, dict[tuple[str, tuple[str, ...]], KeySet]] = {}
        """By source, then by axis and keys."""
        self._counted_at: dict[Labels, float] = {}
        """When the counters of the series of each source were last written."""

    def append(self, source: Source, keys: Sequence[str], steps: Ints, times: Ints, values: Floats) -> None:
        """Adds rows: full blocks are sealed at once, the rest goes to the tail."""
        if len(steps) == 0:
            return
        key_set = self._sets.get(_labels(source), {}).get((source.axis, tuple(keys)))
        if key_set is None:
            if len(set(keys)) < len(keys):
                self._append_repeated_keys(source, keys, steps, times, values)
                return
            key_set = self._key_set(source, tuple(keys))
        rows = np.empty((len(steps), len(keys) + 2))
        rows[:, 0] = steps.view(np.float64)
        rows[:, 1] = times.view(np.float64)
        rows[:, 2:] = values
        key_set.tail.append(rows)
        key_set.rows += len(rows)
        key_set.total += len(rows)
        key_set.last = rows[-1].tobytes()
        if key_set.rows >= BLOCK_ROWS:
            self._seal_blocks(key_set, min_rows=BLOCK_ROWS)
        else:
            self._put_tail(key_set, rows)
        self._write_key_set(key_set)
        labels = _labels(source)
        if self._now() - self._counted_at.setdefault(labels, float("-inf")) >= COUNT_EVERY_S:
            self._write_counters(labels)

    def seal(self, source: Source) -> None:
        """Seals the tail of a source that has ended, and drops its key sets from the cache."""
        labels = _labels(source)
        # Read from the file: an earlier agent may have written sets that are not in this cache.
        key_sets = self._connection.execute(
            f"SELECT axis, keys FROM key_set WHERE {_SOURCE_CONDITION} ORDER BY id",  # noqa: S608 - no part of it comes from outside
            labels,
        ).fetchall()
        for axis, keys in key_sets:
            key_set = self._key_set(Source(*labels, axis), tuple(json.loads(keys)))
            if key_set.rows >= MIN_ROWS:
                self._seal_blocks(key_set, min_rows=1)
                self._write_key_set(key_set)
            else:
                self._join_tail(key_set)
        self._write_counters(labels)
        self._sets.pop(labels, None)
        self._counted_at.pop(labels, None)

    def clear(self) -> None:
        """Clears the cache, when a transaction failed or a run was deleted."""
        self._sets.clear()
        self._counted_at.clear()

    def _append_repeated_keys(
        self, source: Source, keys: Sequence[str], steps: Ints, times: Ints, values: Floats
    ) -> None:
        """Adds rows in which a key occurs twice, as the keys 1 and "1" do: each column is stored."""
        first = [at for at, key in enumerate(keys) if key not in keys[:at]]
        repeated = [at for at in range(len(keys)) if at not in first]
        for columns in (first, repeated):
            self.append(source, [keys[at] for at in columns], steps, times, values[:, columns])

    def _key_set(self, source: Source, keys: tuple[str, ...]) -> KeySet:
        key_sets = self._sets.setdefault(_labels(source), {})
        key_set = key_sets.get((source.axis, keys))
        if key_set is None:
            key_set = self._load(source, keys) or self._create(source, keys)
            key_sets[source.axis, keys] = key_set
        return key_set

    def _load(self, source: Source, keys: tuple[str, ...]) -> KeySet | None:
        labels = (*_labels(source), source.axis, json.dumps(keys))
        row = self._connection.execute(
            "SELECT id, blocks, rows, sealed, last, checksum FROM key_set"  # noqa: S608 - nor here
            f" WHERE {_SOURCE_CONDITION} AND axis = ? AND keys = ?",
            labels,
        ).fetchone()
        if row is None:
            return None
        number, blocks, total, sealed, last, expected = row
        key_set = KeySet(number, source, [], blocks, checksum(number, *labels), total, last=last)
        check("key_set", expected, blocks, total, sealed, start=crc32(last or b"", key_set.labels_checksum))
        members = self._connection.execute(
            "SELECT series_id FROM member WHERE key_set_id = ? ORDER BY position", (number,)
        )
        key_set.series_ids = [series_id for (series_id,) in members]
        check_count("member", len(key_set.series_ids), len(keys))
        key_set.set_tail(read_tail(self._connection, key_set.id, len(keys), total - sealed))
        key_set.pieces = len(key_set.tail)
        return key_set

    def _create(self, source: Source, keys: tuple[str, ...]) -> KeySet:
        labels = (*_labels(source), source.axis, json.dumps(keys))
        cursor = self._connection.execute(
            "INSERT INTO key_set (run_id, segment, rank, host, device, axis, keys)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            labels,
        )
        number = int(cursor.lastrowid or 0)
        key_set = KeySet(number, source, [], 0, checksum(number, *labels))
        for position, key in enumerate(keys):
            key_set.series_ids.append(self._add_member(source, key))
            member = (key_set.series_ids[-1], key_set.id, position)
            write_member(self._connection, member, Summary())
        return key_set

    def _add_member(self, source: Source, key: str) -> int:
        """Adds one to the key sets of a series, which is created where there is none; returns its number."""
        labels = _labels(source)
        self._connection.execute(
            "INSERT OR IGNORE INTO series (run_id, segment, rank, host, device, axis, key, key_sets)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, 0)",
            (*labels, source.axis, key),
        )
        number, key_sets = self._connection.execute(
            f"SELECT id, key_sets FROM series WHERE {_SOURCE_CONDITION} AND axis = ? AND key = ?",  # noqa: S608 - nor here
            (*labels, source.axis, key),
        ).fetchone()
        row = (number, source.run_id, key, source.segment, source.rank, source.host, source.device)
        self._connection.execute(
            "UPDATE series SET key_sets = ?, checksum = ? WHERE id = ?",
            (key_sets + 1, series_checksum((*row, source.axis), key_sets + 1), number),
        )
        return int(number)

    def _put_tail(self, key_set: KeySet, rows: Floats) -> None:
        data = rows.tobytes()
        self._connection.execute(
            "INSERT INTO tail (key_set_id, rows, data, checksum) VALUES (?, ?, ?, ?)",
            (key_set.id, len(rows), data, checksum(key_set.id, key_set.pieces, len(rows), crc32(data))),
        )
        key_set.pieces += 1
        if key_set.pieces > MAX_TAIL_PIECES:
            self._join_tail(key_set)

    def _join_tail(self, key_set: KeySet) -> None:
        """Joins the pieces of a tail into one."""
        if key_set.pieces > 1:
            rows = np.concatenate(key_set.tail)
            self._connection.execute("DELETE FROM tail WHERE key_set_id = ?", (key_set.id,))
            key_set.set_tail([rows])
            key_set.pieces = 0
            self._put_tail(key_set, rows)

    def _seal_blocks(self, key_set: KeySet, min_rows: int) -> None:
        rows = np.concatenate(key_set.tail)
        if key_set.pieces:
            self._connection.execute("DELETE FROM tail WHERE key_set_id = ?", (key_set.id,))
        key_set.set_tail([])
        key_set.pieces = 0
        at = 0
        while len(rows) - at >= min_rows:
            self._seal_block(key_set, rows[at : at + BLOCK_ROWS])
            at += BLOCK_ROWS
        if at < len(rows):
            rest = rows[at:].copy()
            key_set.set_tail([rest])
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
        chunks, summaries = [], []
        for column, series_id in enumerate(key_set.series_ids):
            chunk_key = (series_id, key_set.id, key_set.blocks, len(values))
            nonfinite = int(rolled.nonfinite[:, column].sum())
            extremes = (_finite_min(rolled.minimum[:, column]), _finite_max(rolled.maximum[:, column]))
            ends = (float(values[0, column]), float(values[-1, column]))
            packed = pack_floats(values[:, column])
            sums = (float(total[column]), *ends, nonfinite, packed, checksum(*chunk_key, head(packed)))
            chunks.append((*chunk_key, *extremes, *sums))
            summaries.append(Summary(nonfinite, *extremes, float(total[column])))
        self._connection.executemany("INSERT INTO chunk VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", chunks)
        add_to_summaries(self._connection, key_set.id, summaries)

    def _put_node(
        self,
        key_set: KeySet,
        level: int,
        number: int,
        reach: tuple[int, int],
        rolled: rollup.Rollup,
    ) -> None:
        axis = rollup.pack_axis(rolled)
        node_key = (key_set.id, level, number)
        node = (*node_key, *reach, rolled.exponent, len(rolled.index))
        cursor = self._connection.execute(
            "INSERT INTO node (key_set_id, level, number, low, high, exponent, buckets,"
            " starts, counts, times, checksum) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*node, *axis, checksum(*node, *map(crc32, axis))),
        )
        columns = [rollup.pack_column(rolled, column) for column in range(len(key_set.series_ids))]
        self._connection.executemany(
            "INSERT INTO rollup VALUES (?, ?, ?, ?)",
            [
                (series_id, cursor.lastrowid, data, checksum(series_id, *node_key, crc32(data)))
                for series_id, data in zip(key_set.series_ids, columns, strict=True)
            ],
        )

    def _close_levels(self, key_set: KeySet, number: int) -> None:
        """Writes the parent node when its last child is complete, and so on upwards."""
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
            node_key = (key_set.id, level - 1, number_below)
            packed = self._rollups_of(node_id, node_key)
            columns = [
                rollup.unpack_column(exponent, buckets, axis, packed[series_id])
                for series_id in key_set.series_ids
            ]
            parts.append(rollup.join_columns(columns))
        low, high = min(row[2] for row in children), max(row[3] for row in children)
        widest = max(part.exponent for part in parts)
        exponent = max(widest, rollup.exponent_for(low, high, rollup.NODE_BUCKETS))
        self._put_node(key_set, level, number, (low, high), rollup.merge(parts, exponent))

    def _rollups_of(self, node_id: int, node_key: tuple[int, int, int]) -> dict[int, bytes]:
        """The packed buckets of a node by series."""
        packed = {}
        for series_id, data, expected in self._connection.execute(
            "SELECT series_id, data, checksum FROM rollup WHERE node_id = ?", (node_id,)
        ):
            check("rollup", expected, series_id, *node_key, crc32(data))
            packed[series_id] = data
        return packed

    def _write_counters(self, labels: Labels) -> None:
        """Writes the number of points and the newest point of each series of a source.

        For all series in one statement: one series may be in thousands of key sets.
        """
        self._counted_at[labels] = self._now()
        newest: dict[int, Newest] = {}
        for key_set in self._sets.get(labels, {}).values():
            row = KeySetRow(key_set.id, key_set.source.axis, [], 0, None, None, key_set.last)
            for position, series_id in enumerate(key_set.series_ids):
                candidate = row.newest(position)
                if candidate is not None and (
                    series_id not in newest or candidate[2] >= newest[series_id][2]
                ):
                    newest[series_id] = candidate
        self._connection.execute(
            "UPDATE series SET points = (SELECT sum(rows) FROM member JOIN key_set ON key_set.id = key_set_id"  # noqa: S608 - no part of it comes from outside
            f" WHERE series_id = series.id) WHERE {_SOURCE_CONDITION}",
            labels,
        )
        self._connection.executemany(
            "UPDATE series SET last = ?, last_step = ?, last_ns = ? WHERE id = ? AND last_ns <= ?",
            [(*candidate, series_id, candidate[2]) for series_id, candidate in newest.items()],
        )

    def _write_key_set(self, key_set: KeySet) -> None:
        """Writes how many rows a set has, how many of them are in blocks, and the newest row."""
        counts = (key_set.blocks, key_set.total, key_set.total - key_set.rows)
        self._connection.execute(
            "UPDATE key_set SET blocks = ?, rows = ?, sealed = ?, last = ?, checksum = ? WHERE id = ?",
            (
                *counts,
                key_set.last,
                key_set_checksum(key_set.labels_checksum, counts, key_set.last),
                key_set.id,
            ),
        )


def _labels(source: Source) -> Labels:
    return source.run_id, source.segment, source.rank, source.host, source.device


def _finite_min(values: Floats) -> float | None:
    return float(np.fmin.reduce(values)) if np.isfinite(values).any() else None


def _finite_max(values: Floats) -> float | None:
    return float(np.fmax.reduce(values)) if np.isfinite(values).any() else None
