"""Reads series from the SQLite store: every point, or buckets of them."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from stepscope.schema.series import Points
from stepscope.store import rollup
from stepscope.store.chunks import unpack_floats, unpack_ints
from stepscope.store.sqlite.checksums import DamagedRowError, check, check_count, checksum_columns, head
from stepscope.store.sqlite.sealing import NS
from stepscope.store.sqlite.series_rows import SeriesPart, read_series_parts, read_tail

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from stepscope.schema.series import Buckets, Selection

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Piece = tuple[Ints, Ints, Floats]


def read_points(connection: sqlite3.Connection, selection: Selection) -> Points:
    """Every point, in the order logged; one segment after the other."""
    parts = read_series_parts(connection, selection)
    if len(parts) == 1:
        return _read_part(connection, parts[0])
    pieces: list[Piece] = []
    for segment in dict.fromkeys(part.segment for part in parts):
        parts_points = [_read_part(connection, part) for part in parts if part.segment == segment]
        pieces.append(_by_time([(points.steps, points.times_ns, points.values) for points in parts_points]))
    steps, times, values = _joined(pieces)
    return Points(steps, values, lambda: times)


def read_points_since(connection: sqlite3.Connection, selection: Selection, after: int) -> Points:
    """The points of `read_points` without the first `after`; reads only the newest blocks."""
    parts = read_series_parts(connection, selection)
    pieces: list[Piece] = []
    for segment in dict.fromkeys(part.segment for part in parts):
        segment_parts = [part for part in parts if part.segment == segment]
        total = sum({part.series_id: part.points for part in segment_parts}.values())
        skipped = min(after, total)
        after -= skipped
        needed = total - skipped
        if needed:
            newest = [_newest_of_part(connection, part, needed) for part in segment_parts]
            if sum(len(times) for _, times, _ in newest) < needed:
                raise DamagedRowError("points are missing that were written")
            steps, times, values = newest[0] if len(parts) == 1 else _by_time(newest)
            pieces.append((steps[-needed:], times[-needed:], values[-needed:]))
    steps, times, values = _joined(pieces)
    return Points(steps, values, lambda: times)


def read_reach(connection: sqlite3.Connection, selection: Selection) -> tuple[int, int] | None:
    """The first and the last step (or second); None when there is no point."""
    return _reach(connection, read_series_parts(connection, selection))


def read_buckets(
    connection: sqlite3.Connection,
    selection: Selection,
    most: int,
    low: int | None,
    high: int | None,
) -> Buckets:
    """At most `most` buckets; reads rollups where they are fine enough, points elsewhere."""
    parts = read_series_parts(connection, selection)
    reach = _reach(connection, parts)
    if reach is None:
        return rollup.as_buckets(None, 0)
    low = reach[0] if low is None else max(low, reach[0])
    high = reach[1] if high is None else min(high, reach[1])
    if low > high:
        return rollup.as_buckets(None, 0)
    exponent = rollup.exponent_for(low, high, most)
    # Whole buckets only: an edge bucket cut by the range would change as the range moves.
    span = (low >> exponent << exponent, ((high >> exponent) + 1 << exponent) - 1)
    rollups: list[rollup.Rollup] = []
    for part in parts:
        rollups.extend(_rollups(connection, part, span, exponent))
        rollups.extend(_tail_rollups(connection, part, span, exponent))
    merged = rollup.merge(rollups, exponent) if rollups else None
    return rollup.as_buckets(_within(merged, span), exponent)


def _read_part(connection: sqlite3.Connection, part: SeriesPart) -> Points:
    """All points of one part, unpacked into their final arrays; times are unpacked when first used."""
    rows = connection.execute(
        "SELECT block.rows, block.steps, block.times, chunk.data,"  # noqa: S608 - no part of it comes from outside
        f" {checksum_columns(connection, 'block', 'chunk')} FROM chunk"
        " JOIN block ON block.key_set_id = chunk.key_set_id AND block.number = chunk.number"
        " WHERE chunk.series_id = ? AND chunk.key_set_id = ? ORDER BY chunk.number",
        (part.series_id, part.key_set.id),
    ).fetchall()
    check_count("chunk", len(rows), part.key_set.blocks)
    blocks = [_checked(part, number, row) for number, row in enumerate(rows)]
    tail = list(_tail(connection, part))
    total = sum(count for count, *_ in blocks) + sum(len(steps) for steps, _, _ in tail)
    steps, values = np.empty(total, np.int64), np.empty(total)
    at = 0
    for count, packed_steps, _, packed_values in blocks:
        steps[at : at + count] = unpack_ints(packed_steps, count)
        values[at : at + count] = unpack_floats(packed_values, count)
        at += count
    for tail_steps, _, tail_values in tail:
        steps[at : at + len(tail_steps)], values[at : at + len(tail_steps)] = tail_steps, tail_values
        at += len(tail_steps)
    packed_times = [(times, count) for count, _, times, _ in blocks]
    return Points(steps, values, lambda: _times(packed_times, [times for _, times, _ in tail]))


def _checked(part: SeriesPart, number: int, row: tuple[Any, ...]) -> tuple[int, bytes, bytes, bytes]:
    """Checks a block and its chunk against their number and checksums, and returns them."""
    rows, steps, times, data, of_block, of_chunk = row
    check("block", of_block, part.key_set.id, number, rows, head(steps), head(times))
    check("chunk", of_chunk, part.series_id, part.key_set.id, number, rows, head(data))
    return rows, steps, times, data


def _newest_of_part(connection: sqlite3.Connection, part: SeriesPart, needed: int) -> Piece:
    """The newest points of a part, at least `needed` or all it has: whole blocks, in order."""
    pieces = list(_tail(connection, part))
    count = sum(len(steps) for steps, _, _ in pieces)
    number = part.key_set.blocks
    while count < needed and number > 0:
        number -= 1
        rows, steps, times, data = _block(connection, part, number)
        pieces.insert(0, (unpack_ints(steps, rows), unpack_ints(times, rows), unpack_floats(data, rows)))
        count += rows
    return _joined(pieces)


def _times(packed: list[tuple[bytes, int]], tail: list[Ints]) -> Ints:
    parts = [unpack_ints(data, count) for data, count in packed]
    return np.concatenate([np.empty(0, np.int64), *parts, *tail])


def _tail(connection: sqlite3.Connection, part: SeriesPart) -> Iterator[Piece]:
    for rows in read_tail(connection, part.key_set.id, len(part.key_set.keys), part.key_set.unsealed):
        bits = rows.view(np.int64)
        yield bits[:, 0], bits[:, 1], rows[:, 2 + part.position]


def _joined(pieces: list[Piece]) -> Piece:
    if not pieces:
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
    if len(pieces) == 1:
        return pieces[0]
    steps, times, values = zip(*pieces, strict=True)
    return np.concatenate(steps), np.concatenate(times), np.concatenate(values)


def _by_time(pieces: list[Piece]) -> Piece:
    """Sorts points of several key sets, or ranks, by the time they were logged."""
    steps, times, values = _joined(pieces)
    order = np.argsort(times, kind="stable")
    return steps[order], times[order], values[order]


def _reach(connection: sqlite3.Connection, parts: list[SeriesPart]) -> tuple[int, int] | None:
    lows, highs = [], []
    for part in parts:
        for low, high in _covering(connection, part):
            lows.append(low)
            highs.append(high)
        for x, _, _ in _tail_on_axis(connection, part):
            lows.append(int(x.min()))
            highs.append(int(x.max()))
    return (min(lows), max(highs)) if lows else None


def _covering(connection: sqlite3.Connection, part: SeriesPart) -> Iterator[tuple[int, int]]:
    """The ranges of the fewest nodes that cover a part."""
    for level in range(_top(part.key_set.blocks)[0], 0, -1):
        numbers = _remainder(part.key_set.blocks, level)
        if not numbers:
            continue
        rows = connection.execute(
            "SELECT number, low, high, exponent, buckets, starts, counts, times,"  # noqa: S608 - no part of it comes from outside
            f" {checksum_columns(connection, 'node')} FROM node"
            " WHERE key_set_id = ? AND level = ? AND number BETWEEN ? AND ?",
            (part.key_set.id, level, min(numbers), max(numbers)),
        ).fetchall()
        check_count("node", len(rows), len(numbers))
        for number, low, high, exponent, buckets, starts, counts, times, expected in rows:
            node = (part.key_set.id, level, number, low, high, exponent, buckets)
            check("node", expected, *node, *map(crc32, (starts, counts, times)))
            yield low, high


def _tail_on_axis(connection: sqlite3.Connection, part: SeriesPart) -> Iterator[Piece]:
    for steps, times, values in _tail(connection, part):
        yield (steps if part.key_set.axis == "step" else times // NS), times, values


def _tail_rollups(
    connection: sqlite3.Connection, part: SeriesPart, span: tuple[int, int], exponent: int
) -> Iterator[rollup.Rollup]:
    pieces = [
        (x, times, values)
        for x, times, values in _tail_on_axis(connection, part)
        if x.max() >= span[0] and x.min() <= span[1]
    ]
    if pieces:
        x, times, values = _joined(pieces)
        yield rollup.roll_up(x, times, values[:, None], exponent)


def _rollups(
    connection: sqlite3.Connection, part: SeriesPart, span: tuple[int, int], exponent: int
) -> Iterator[rollup.Rollup]:
    """Walks the pyramid from the top: replaces a node that is too coarse by its children, a leaf by points.

    Rollups come in the order they were logged: it decides which value is the last of equal times.
    """
    rollups: list[tuple[int, rollup.Rollup]] = []
    level, numbers = _top(part.key_set.blocks)
    while level > 0:
        children: set[int] = set()
        for number, node_exponent, buckets, axis, data in _nodes(connection, part, span, level, numbers):
            if node_exponent <= exponent:
                part_rollup = rollup.unpack_column(node_exponent, buckets, axis, data)
                rollups.append((number * rollup.FAN_OUT ** (level - 1), part_rollup))
            elif level == 1:
                rollups.append((number, _block_rollup(connection, part, number, exponent)))
            else:
                first = number * rollup.FAN_OUT
                children.update(range(first, first + rollup.FAN_OUT))
        level -= 1
        children.update(_remainder(part.key_set.blocks, level))
        numbers = children
    for _, part_rollup in sorted(rollups, key=itemgetter(0)):
        yield part_rollup


def _top(blocks: int) -> tuple[int, set[int]]:
    level = 1
    while blocks >= rollup.FAN_OUT**level:
        level += 1
    return level, _remainder(blocks, level)


def _remainder(blocks: int, level: int) -> set[int]:
    """Nodes of a level that no complete node above covers."""
    complete = blocks // rollup.FAN_OUT ** (level - 1) if level else 0
    return set(range(complete // rollup.FAN_OUT * rollup.FAN_OUT, complete))


def _nodes(
    connection: sqlite3.Connection,
    part: SeriesPart,
    span: tuple[int, int],
    level: int,
    numbers: set[int],
) -> Iterator[tuple[int, int, int, tuple[bytes, bytes, bytes], bytes]]:
    if not numbers:
        return
    rows = connection.execute(
        "SELECT number, low, high, exponent, buckets, starts, counts, times, data,"  # noqa: S608 - no part of it comes from outside
        f" {checksum_columns(connection, 'node', 'rollup')} FROM node"
        " JOIN rollup ON rollup.node_id = node.id AND rollup.series_id = ?"
        " WHERE key_set_id = ? AND level = ? AND number BETWEEN ? AND ? ORDER BY number",
        (part.series_id, part.key_set.id, level, min(numbers), max(numbers)),
    )
    count = 0
    for number, low, high, exponent, buckets, starts, counts, times, data, *checksums in rows:
        if number not in numbers:
            continue
        count += 1
        axis = (starts, counts, times)
        node_key = (part.key_set.id, level, number)
        check("node", checksums[0], *node_key, low, high, exponent, buckets, *map(crc32, axis))
        check("rollup", checksums[1], part.series_id, *node_key, crc32(data))
        if high >= span[0] and low <= span[1]:
            yield number, exponent, buckets, axis, data
    check_count("node", count, len(numbers))


def _block_rollup(
    connection: sqlite3.Connection, part: SeriesPart, number: int, exponent: int
) -> rollup.Rollup:
    count, steps, times, data = _block(connection, part, number)
    times_ns = unpack_ints(times, count)
    x = unpack_ints(steps, count) if part.key_set.axis == "step" else times_ns // NS
    return rollup.roll_up(x, times_ns, unpack_floats(data, count)[:, None], exponent)


def _block(connection: sqlite3.Connection, part: SeriesPart, number: int) -> tuple[int, bytes, bytes, bytes]:
    """One packed block of a part: number of rows, steps, times, values."""
    row = connection.execute(
        "SELECT block.rows, block.steps, block.times, chunk.data,"  # noqa: S608 - no part of it comes from outside
        f" {checksum_columns(connection, 'block', 'chunk')} FROM chunk"
        " JOIN block ON block.key_set_id = chunk.key_set_id AND block.number = chunk.number"
        " WHERE chunk.series_id = ? AND chunk.key_set_id = ? AND chunk.number = ?",
        (part.series_id, part.key_set.id, number),
    ).fetchone()
    return _checked(part, number, row)


def _within(rolled: rollup.Rollup | None, span: tuple[int, int]) -> rollup.Rollup | None:
    if rolled is None:
        return None
    start = rolled.index << rolled.exponent
    inside = (start >= span[0]) & (start <= span[1])
    columns = ("index", "count", "last_ns", "minimum", "maximum", "total", "last", "nonfinite")
    return rollup.Rollup(rolled.exponent, **{name: getattr(rolled, name)[inside] for name in columns})
