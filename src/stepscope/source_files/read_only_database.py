"""Reads tables of an SQLite file of another tool: read-only, and nothing but plain tables."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from stepscope.errors import SourceError
from stepscope.source_files.source_folder import open_source

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAGIC = b"SQLite format 3\0"
BATCH = 1000
MAX_VALUE_BYTES = 64 << 20
"""The longest text that is read from a cell."""


def is_database(path: Path) -> bool:
    """Whether a file begins like an SQLite database."""
    try:
        with open_source(path) as file:
            return file.read(len(MAGIC)) == MAGIC
    except SourceError:
        return False


def damage_of(path: Path) -> SourceError | None:
    """What keeps a database from being read, as where a part of the file is missing; None for other files."""
    if not is_database(path):
        return None
    try:
        with contextlib.closing(ReadOnlyDatabase(path)) as database:
            database.columns("")
    except SourceError as error:
        return error
    return None


class ReadOnlyDatabase:
    """An SQLite file that is only read. Views, virtual tables and triggers of it are never used."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not is_database(path):
            raise SourceError(
                f"{path} is not an SQLite database. Check the path, or choose the kind with --kind."
            )
        # A log beside it has newer rows, which an immutable file would hide.
        has_log = any(
            log.exists() and log.stat().st_size for log in (Path(f"{path}-wal"), Path(f"{path}-journal"))
        )
        address = f"file:{quote(os.fsencode(path.absolute()))}?mode=ro" + ("" if has_log else "&immutable=1")
        with self._reporting():
            self._connection = sqlite3.connect(address, uri=True, isolation_level=None)
            if sys.version_info >= (3, 11):
                self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
            self._connection.execute("PRAGMA trusted_schema = OFF")
            self._connection.execute("PRAGMA query_only = ON")
            self._connection.text_factory = _text

    def columns(self, table: str) -> set[str]:
        """The columns of a plain table; none where there is no such table."""
        with self._reporting():
            kinds = self._connection.execute(
                "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ? "
                "AND sql NOT LIKE 'CREATE VIRTUAL%'",
                (table,),
            ).fetchall()
            if not kinds:
                return set()
            # Without generated columns, which could compute anything.
            return {
                row[1] for row in self._connection.execute(f'PRAGMA table_xinfo("{table}")') if not row[6]
            }

    def has(self, table: str, columns: Sequence[str]) -> bool:
        """Whether there is a plain table with these columns."""
        return set(columns) <= self.columns(table)

    def rows(self, query: str, values: Sequence[object] = ()) -> Iterator[tuple[Any, ...]]:
        """The rows of a query, some at a time."""
        with self._reporting():
            cursor = self._connection.execute(query, values)
        while True:
            with self._reporting():
                rows = cursor.fetchmany(BATCH)
            if not rows:
                return
            yield from rows

    def close(self) -> None:
        """Closes the file."""
        self._connection.close()

    @contextlib.contextmanager
    def _reporting(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:
            is_damaged = type(error) is sqlite3.DatabaseError  # its subclasses have other causes
            state = "is a damaged SQLite database" if is_damaged else "cannot be read as an SQLite database"
            raise SourceError(
                f"{self.path} {state}: {error}. Nothing of it was imported. Close the program that writes "
                "it, or copy it again."
            ) from error


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")
