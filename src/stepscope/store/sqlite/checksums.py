"""Checksums and counts of rows: SQLite itself detects neither changed nor missing rows.

A row is checked by the reader that uses it. Rows of an older version have no checksum and are not checked.
Compressed columns have their own checksum, so only their beginning is included here, and reading a long
series costs no more than without checksums.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING
from zlib import crc32

from stepscope.store.sqlite import tables

if TYPE_CHECKING:
    import sqlite3

    Column = str | int | float | bytes | None

HEAD_BYTES = 40
"""More than the length of a packed column that is not compressed."""


class DamagedRowError(ValueError):
    """A row differs from what was written, or is missing."""


def checksum(*columns: Column, start: int = 0) -> int:
    """The checksum of a row, from the columns as SQLite returns them."""
    return crc32(repr(columns).encode(), start)


def head(packed: bytes) -> bytes:
    """The part of a packed column that may have no checksum of its own, and its length."""
    return packed[:HEAD_BYTES] + len(packed).to_bytes(8, "little")


def as_stored(value: float) -> float | None:
    """A number as SQLite returns it: NaN as None, and no negative zero."""
    return None if math.isnan(value) else float(value) + 0.0


def put_checksum(connection: sqlite3.Connection, table: str, columns: str, number: int | None) -> None:
    """Updates the checksum of a row from the columns in the table."""
    row = connection.execute(f"SELECT {columns} FROM {table} WHERE id = ?", (number,)).fetchone()  # noqa: S608 - no part of it comes from outside
    if row is not None:
        connection.execute(f"UPDATE {table} SET checksum = ? WHERE id = ?", (checksum(*row), number))  # noqa: S608 - nor here


def check(table: str, expected: int | None, *columns: Column, start: int = 0) -> None:
    """Raises DamagedRowError when a row does not match the checksum that was written with it."""
    if expected is not None and expected != crc32(repr(columns).encode(), start):
        raise DamagedRowError(f"a row of the table {table} is not what was written")


def check_count(table: str, count: int, expected: int | None) -> None:
    """Raises DamagedRowError when there are fewer or more rows than were written."""
    if expected is not None and count != expected:
        raise DamagedRowError(f"{count} rows were found in the table {table}, {expected} were written")


def check_order(connection: sqlite3.Connection, *table_names: str) -> None:
    """Raises DamagedRowError when rows are not in order, as after two pages of the file were swapped.

    A search can then miss the rows of a run, and a search in another table their count. It reads the whole
    tables, so it is for a run of which nothing was found.
    """
    for table_name in table_names:
        message = connection.execute(f"PRAGMA integrity_check({table_name})").fetchone()[0]
        if message != "ok":
            raise DamagedRowError(f"the table {table_name} is damaged: {message}")


def has_checksums(connection: sqlite3.Connection) -> bool:
    """Whether the file has checksums and counts; False for a file of an older version."""
    return tables.version_of(connection) >= tables.CHECKSUMS_VERSION


def checksum_columns(connection: sqlite3.Connection, *table_names: str) -> str:
    """The checksum columns of these tables for a query; NULL where the file has none."""
    if has_checksums(connection):
        return ", ".join(f"{table_name}.checksum" for table_name in table_names)
    return ", ".join("NULL" for _ in table_names)


def row_count(connection: sqlite3.Connection, run_id: str, what: str) -> int | None:
    """How many rows were written; None where they were not counted."""
    if not has_checksums(connection):
        return None
    row = connection.execute(
        "SELECT rows FROM tally WHERE run_id = ? AND what = ?", (run_id, what)
    ).fetchone()
    return 0 if row is None else int(row[0])


def row_count_of_all_runs(connection: sqlite3.Connection, what: str) -> int | None:
    """How many rows were written for all runs together; None where they were not counted."""
    if not has_checksums(connection):
        return None
    (rows,) = connection.execute(
        "SELECT coalesce(sum(rows), 0) FROM tally WHERE what = ?", (what,)
    ).fetchone()
    return int(rows)


def row_counts_by_prefix(connection: sqlite3.Connection, run_id: str, prefix: str) -> dict[str, int] | None:
    """How many rows were written of each kind with this prefix; None where they were not counted."""
    if not has_checksums(connection):
        return None
    rows = connection.execute(
        "SELECT what, rows FROM tally WHERE run_id = ? AND what >= ? AND what < ? ORDER BY what",
        (run_id, prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)),
    )
    return {what.removeprefix(prefix): count for what, count in rows if count}
