"""Reads series out of the SQLite store: every point, or buckets of them."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from stepscope.schema.series import Points
from stepscope.store import rollup
from stepscope.store.checksums import DamagedRowError, check, check_count, columns_for, head
from stepscope.store.chunks import unpack_floats, unpack_ints
from stepscope.store.sealing import NS
from stepscope.store.series_rows import Strand, loose_rows, read_strands

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from stepscope.schema.series import Buckets, Selection

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Piece = tuple[Ints, Ints, Floats]


def read_points(connection: sqlite3.Connection, selection: Selection) -> Points:
    """Every point, in the order logged; segments one after the other."""
    strands = read_strands(connection, selection)
    if len(strands) == 1:
        return _alone(connection, strands[0])
    pieces: list[Piece] = []
    for segment in dict.fromkeys(strand.segment for strand in strands):
        found = [_alone(connection, strand) for strand in strands if strand.segment == segment]
        pieces.append(_by_time([(one.steps, one.times_ns, one.values) for one in found]))
    steps, times, values = _joined(pieces)
    return Points(steps, values, lambda: times)


def read_points_since(connection: sqlite3.Connection, selection: Selection, after: int) -> Points:
    """The points after the first so many of those `read_points` gives; reads the newest blocks alone."""
    strands = read_strands(connection, selection)
    pieces: list[Piece] = []
    for segment in dict.fromkeys(strand.segment for strand in strands):
        here = [strand for strand in strands if strand.segment == segment]
        total = sum({strand.series_id: strand.points for strand in here}.values())
        passed = min(after, total)
        after -= passed
        wanted = total - passed
        if wanted:
            found = [_newest(connection, strand, wanted) for strand in here]
            if sum(len(times) for _, times, _ in found) < wanted:
                raise DamagedRowError("points are missing that were written")
            steps, times, values = found[0] if len(strands) == 1 else _by_time(found)
            pieces.append((steps[-wanted:], times[-wanted:], values[-wanted:]))
    steps, times, values = _joined(pieces)
    return Points(steps, values, lambda: times)


def read_reach(connection: sqlite3.Connection, selection: Selection) -> tuple[int, int] | None:
    """The first and the last step (or second); None when there is no point."""
    return _reach(connection, read_strands(connection, selection))


def read_buckets(
    connection: sqlite3.Connection,
    selection: Selection,
    most: int,
    low: int | None,
    high: int | None,
) -> Buckets:
    """At most so many buckets; reads rollups wherever they are fine enough, points elsewhere."""
    strands = read_strands(connection, selection)
    reach = _reach(connection, strands)
    if reach is None:
        return rollup.as_buckets(None, 0)
    low = reach[0] if low is None else max(low, reach[0])
    high = reach[1] if high is None else min(high, reach[1])
    if low > high:
        return rollup.as_buckets(None, 0)
    exponent = rollup.exponent_for(low, high, most)
    # Whole buckets only: an edge bucket cut by the range would change as the range moves.
    span = (low >> exponent << exponent, ((high >> exponent) + 1 << exponent) - 1)
    parts: list[rollup.Rollup] = []
    for strand in strands:
        parts.extend(_rollups(connection, strand, span, exponent))
        parts.extend(_loose_rollups(connection, strand, span, exponent))
    merged = rollup.merge(parts, exponent) if parts else None
    return rollup.as_buckets(_within(merged, span), exponent)


def _alone(connection: sqlite3.Connection, strand: Strand) -> Points:
    """All points of a strand, unpacked into the place they stay in; times wait until somebody asks."""
    rows = connection.execute(
        "SELECT block.rows, block.steps, block.times, chunk.data,"  # noqa: S608 - no part of it comes from outside
        f" {columns_for(connection, 'block', 'chunk')} FROM chunk"
        " JOIN block ON block.key_set_id = chunk.key_set_id AND block.number = chunk.number"
        " WHERE chunk.series_id = ? AND chunk.key_set_id = ? ORDER BY chunk.number",
        (strand.series_id, strand.key_set.id),
    ).fetchall()
    check_count("chunk", len(rows), strand.key_set.blocks)
    blocks = [_checked(strand, number, row) for number, row in enumerate(rows)]
    loose = list(_loose(connection, strand))
    total = sum(count for count, *_ in blocks) + sum(len(steps) for steps, _, _ in loose)
    steps, values = np.empty(total, np.int64), np.empty(total)
    at = 0
    for count, packed_steps, _, packed_values in blocks:
        steps[at : at + count] = unpack_ints(packed_steps, count)
        values[at : at + count] = unpack_floats(packed_values, count)
        at += count
    for some_steps, _, some_values in loose:
        steps[at : at + len(some_steps)], values[at : at + len(some_steps)] = some_steps, some_values
        at += len(some_steps)
    packed_times = [(times, count) for count, _, times, _ in blocks]
    return Points(steps, values, lambda: _times(packed_times, [times for _, times, _ in loose]))


def _checked(strand: Strand, number: int, row: tuple[Any, ...]) -> tuple[int, bytes, bytes, bytes]:
    """A block and a chunk of it, when they are those of that number and as they were written."""
    rows, steps, times, data, of_block, of_chunk = row
    check("block", of_block, strand.key_set.id, number, rows, head(steps), head(times))
    check("chunk", of_chunk, strand.series_id, strand.key_set.id, number, rows, head(data))
    return rows, steps, times, data


def _newest(connection: sqlite3.Connection, strand: Strand, wanted: int) -> Piece:
    """At least so many of the newest points of a strand, or all it has: whole blocks, in order."""
    pieces = list(_loose(connection, strand))
    found = sum(len(steps) for steps, _, _ in pieces)
    number = strand.key_set.blocks
    while found < wanted and number > 0:
        number -= 1
        count, steps, times, data = _block(connection, strand, number)
        pieces.insert(0, (unpack_ints(steps, count), unpack_ints(times, count), unpack_floats(data, count)))
        found += count
    return _joined(pieces)


def _times(packed: list[tuple[bytes, int]], loose: list[Ints]) -> Ints:
    parts = [unpack_ints(data, count) for data, count in packed]
    return np.concatenate([np.empty(0, np.int64), *parts, *loose])


def _loose(connection: sqlite3.Connection, strand: Strand) -> Iterator[Piece]:
    for rows in loose_rows(connection, strand.key_set.id, len(strand.key_set.keys), strand.key_set.loose):
        bits = rows.view(np.int64)
        yield bits[:, 0], bits[:, 1], rows[:, 2 + strand.position]


def _joined(pieces: list[Piece]) -> Piece:
    if not pieces:
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
    if len(pieces) == 1:
        return pieces[0]
    steps, times, values = zip(*pieces, strict=True)
    return np.concatenate(steps), np.concatenate(times), np.concatenate(values)


def _by_time(pieces: list[Piece]) -> Piece:
    """Puts points of several key sets, or ranks, into the order they were logged in."""
    steps, times, values = _joined(pieces)
    order = np.argsort(times, kind="stable")
    return steps[order], times[order], values[order]


def _reach(connection: sqlite3.Connection, strands: list[Strand]) -> tuple[int, int] | None:
    lows, highs = [], []
    for strand in strands:
        for low, high in _covering(connection, strand):
            lows.append(low)
            highs.append(high)
        for x, _, _ in _loose_on_axis(connection, strand):
            lows.append(int(x.min()))
            highs.append(int(x.max()))
    return (min(lows), max(highs)) if lows else None


def _covering(connection: sqlite3.Connection, strand: Strand) -> Iterator[tuple[int, int]]:
    """How far the fewest nodes reach that cover a strand."""
    for level in range(_top(strand.key_set.blocks)[0], 0, -1):
        numbers = _remainder(strand.key_set.blocks, level)
        if not numbers:
            continue
        rows = connection.execute(
            "SELECT number, low, high, exponent, buckets, starts, counts, times,"  # noqa: S608 - no part of it comes from outside
            f" {columns_for(connection, 'node')} FROM node"
            " WHERE key_set_id = ? AND level = ? AND number BETWEEN ? AND ?",
            (strand.key_set.id, level, min(numbers), max(numbers)),
        ).fetchall()
        check_count("node", len(rows), len(numbers))
        for number, low, high, exponent, buckets, starts, counts, times, found in rows:
            node = (strand.key_set.id, level, number, low, high, exponent, buckets)
            check("node", found, *node, *map(crc32, (starts, counts, times)))
            yield low, high


def _loose_on_axis(connection: sqlite3.Connection, strand: Strand) -> Iterator[Piece]:
    for steps, times, values in _loose(connection, strand):
        yield (steps if strand.key_set.axis == "step" else times // NS), times, values


def _loose_rollups(
    connection: sqlite3.Connection, strand: Strand, span: tuple[int, int], exponent: int
) -> Iterator[rollup.Rollup]:
    pieces = [
        (x, times, values)
        for x, times, values in _loose_on_axis(connection, strand)
        if x.max() >= span[0] and x.min() <= span[1]
    ]
    if pieces:
        x, times, values = _joined(pieces)
        yield rollup.roll_up(x, times, values[:, None], exponent)


def _rollups(
    connection: sqlite3.Connection, strand: Strand, span: tuple[int, int], exponent: int
) -> Iterator[rollup.Rollup]:
    """Walks the pyramid from the top: a node too coarse gives way to its children, a leaf to points.

    The parts come in the order they were logged in: it decides which value is the last of equal times.
    """
    found: list[tuple[int, rollup.Rollup]] = []
    level, wanted = _top(strand.key_set.blocks)
    while level > 0:
        below: set[int] = set()
        for number, node_exponent, buckets, axis, data in _nodes(connection, strand, span, level, wanted):
            if node_exponent <= exponent:
                part = rollup.unpack_column(node_exponent, buckets, axis, data)
                found.append((number * rollup.FAN_OUT ** (level - 1), part))
            elif level == 1:
                found.append((number, _block_rollup(connection, strand, number, exponent)))
            else:
                first = number * rollup.FAN_OUT
                below.update(range(first, first + rollup.FAN_OUT))
        level -= 1
        below.update(_remainder(strand.key_set.blocks, level))
        wanted = below
    for _, part in sorted(found, key=itemgetter(0)):
        yield part


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
    strand: Strand,
    span: tuple[int, int],
    level: int,
    wanted: set[int],
) -> Iterator[tuple[int, int, int, tuple[bytes, bytes, bytes], bytes]]:
    if not wanted:
        return
    rows = connection.execute(
        "SELECT number, low, high, exponent, buckets, starts, counts, times, data,"  # noqa: S608 - no part of it comes from outside
        f" {columns_for(connection, 'node', 'rollup')} FROM node"
        " JOIN rollup ON rollup.node_id = node.id AND rollup.series_id = ?"
        " WHERE key_set_id = ? AND level = ? AND number BETWEEN ? AND ? ORDER BY number",
        (strand.series_id, strand.key_set.id, level, min(wanted), max(wanted)),
    )
    met = 0
    for number, low, high, exponent, buckets, starts, counts, times, data, *sums in rows:
        if number not in wanted:
            continue
        met += 1
        axis = (starts, counts, times)
        place = (strand.key_set.id, level, number)
        check("node", sums[0], *place, low, high, exponent, buckets, *map(crc32, axis))
        check("rollup", sums[1], strand.series_id, *place, crc32(data))
        if high >= span[0] and low <= span[1]:
            yield number, exponent, buckets, axis, data
    check_count("node", met, len(wanted))


def _block_rollup(
    connection: sqlite3.Connection, strand: Strand, number: int, exponent: int
) -> rollup.Rollup:
    count, steps, times, data = _block(connection, strand, number)
    times_ns = unpack_ints(times, count)
    x = unpack_ints(steps, count) if strand.key_set.axis == "step" else times_ns // NS
    return rollup.roll_up(x, times_ns, unpack_floats(data, count)[:, None], exponent)


def _block(connection: sqlite3.Connection, strand: Strand, number: int) -> tuple[int, bytes, bytes, bytes]:
    """One block of a strand, packed: how many rows, steps, times, values."""
    row = connection.execute(
        "SELECT block.rows, block.steps, block.times, chunk.data,"  # noqa: S608 - no part of it comes from outside
        f" {columns_for(connection, 'block', 'chunk')} FROM chunk"
        " JOIN block ON block.key_set_id = chunk.key_set_id AND block.number = chunk.number"
        " WHERE chunk.series_id = ? AND chunk.key_set_id = ? AND chunk.number = ?",
        (strand.series_id, strand.key_set.id, number),
    ).fetchone()
    return _checked(strand, number, row)


def _within(found: rollup.Rollup | None, span: tuple[int, int]) -> rollup.Rollup | None:
    if found is None:
        return None
    start = found.index << found.exponent
    inside = (start >= span[0]) & (start <= span[1])
    columns = ("index", "count", "last_ns", "minimum", "maximum", "total", "last", "nonfinite")
    return rollup.Rollup(found.exponent, **{name: getattr(found, name)[inside] for name in columns})
