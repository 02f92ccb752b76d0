"""Checksums of rows, and counts of how many there should be: SQLite itself notices neither kind of damage.

A row is checked by the reader that uses it. What an older version wrote has no checksum and is taken as it
is. Packed columns that are compressed carry a checksum of their own, so of those only the beginning counts
here, and reading a long series costs no more than before.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING
from zlib import crc32

from stepscope.store import tables

if TYPE_CHECKING:
    import sqlite3

    Column = str | int | float | bytes | None

HEAD_BYTES = 40
"""Longer than a packed column that is not compressed."""


class DamagedRowError(ValueError):
    """A row is not what was written, or is missing."""


def checksum(*columns: Column, start: int = 0) -> int:
    """The checksum of a row, from the columns as SQLite gives them back."""
    return crc32(repr(columns).encode(), start)


def head(packed: bytes) -> bytes:
    """What of a packed column is not protected by a checksum of its own, and how long it is."""
    return packed[:HEAD_BYTES] + len(packed).to_bytes(8, "little")


def as_stored(value: float) -> float | None:
    """A number as SQLite gives it back: NaN as nothing, and no negative zero."""
    return None if math.isnan(value) else float(value) + 0.0


def put_checksum(connection: sqlite3.Connection, table: str, columns: str, number: int | None) -> None:
    """Writes the checksum of a row that was written column by column, from what the table has now."""
    row = connection.execute(f"SELECT {columns} FROM {table} WHERE id = ?", (number,)).fetchone()  # noqa: S608 - no part of it comes from outside
    if row is not None:
        connection.execute(f"UPDATE {table} SET checksum = ? WHERE id = ?", (checksum(*row), number))  # noqa: S608 - nor here


def check(table: str, expected: int | None, *columns: Column, start: int = 0) -> None:
    """Raises DamagedRowError when a row does not have the checksum that was written with it."""
    if expected is not None and expected != crc32(repr(columns).encode(), start):
        raise DamagedRowError(f"a row of the table {table} is not what was written")


def check_count(table: str, count: int, expected: int | None) -> None:
    """Raises DamagedRowError when rows are missing, or there are too many."""
    if expected is not None and count != expected:
        raise DamagedRowError(f"{count} rows were found in the table {table}, {expected} were written")


def has_checksums(connection: sqlite3.Connection) -> bool:
    """Whether the file has checksums and counts at all; False for one of an older version."""
    return tables.version_of(connection) >= tables.CHECKSUMS_VERSION


def checksum_columns(connection: sqlite3.Connection, *table_names: str) -> str:
    """The checksum columns of these tables in a query; NULL where the file has none."""
    if has_checksums(connection):
        return ", ".join(f"{table_name}.checksum" for table_name in table_names)
    return ", ".join("NULL" for _ in table_names)


def row_count(connection: sqlite3.Connection, run_id: str, what: str) -> int | None:
    """How many rows were written; None where nobody counted."""
    if not has_checksums(connection):
        return None
    row = connection.execute(
        "SELECT rows FROM tally WHERE run_id = ? AND what = ?", (run_id, what)
    ).fetchone()
    return 0 if row is None else int(row[0])


def row_count_of_all_runs(connection: sqlite3.Connection, what: str) -> int | None:
    """How many rows were written for all runs together; None where nobody counted."""
    if not has_checksums(connection):
        return None
    (rows,) = connection.execute(
        "SELECT coalesce(sum(rows), 0) FROM tally WHERE what = ?", (what,)
    ).fetchone()
    return int(rows)


def row_counts_by_prefix(connection: sqlite3.Connection, run_id: str, prefix: str) -> dict[str, int] | None:
    """How many rows were written of each kind whose name begins so; None where nobody counted."""
    if not has_checksums(connection):
        return None
    rows = connection.execute(
        "SELECT what, rows FROM tally WHERE run_id = ? AND what >= ? AND what < ? ORDER BY what",
        (run_id, prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)),
    )
    return {what.removeprefix(prefix): count for what, count in rows if count}
