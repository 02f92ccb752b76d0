"""Checks a SQLite file: whether the library can use it, and whether it is damaged."""

from __future__ import annotations

import os
import sqlite3
import time
from typing import TYPE_CHECKING

from stepscope.errors import StoreError
from stepscope.store.base import StoreHealth
from stepscope.store.sqlite.connecting import connect_to_read
from stepscope.store.sqlite.sqlite_reader import SqliteReader

if TYPE_CHECKING:
    from pathlib import Path

MIN_SQLITE = (3, 35, 0)
"""The first version whose ON CONFLICT needs no list of columns."""

MAX_VERIFIED_BYTES = 256 << 20
"""A larger database is not verified completely, which would take minutes."""

_CHECK_INSTRUCTIONS = 100_000
"""Instructions of the database engine between two checks of the clock."""


def check(path: Path) -> StoreHealth:
    """Whether the SQLite library is new enough, and the file can be read."""
    library = f"SQLite {sqlite3.sqlite_version}"
    if sqlite3.sqlite_version_info < MIN_SQLITE:
        needed = ".".join(map(str, MIN_SQLITE))
        return StoreHealth(f"{library} is too old; {needed} or newer is needed.", problem="old_library")
    if not path.exists():
        return StoreHealth(f"{library}; no store file yet")
    try:
        reader = SqliteReader(path)
    except StoreError as error:
        return StoreHealth(str(error), problem="damaged" if os.access(path, os.R_OK) else "no_access")
    try:
        bytes_used = reader.bytes_used()
        if bytes_used <= MAX_VERIFIED_BYTES:
            reader.verify()
        version = reader.file_version()
    except StoreError as error:
        return StoreHealth(str(error), problem="damaged")
    finally:
        reader.close()
    return StoreHealth(f"{library}; {path}, version {version}", bytes_used)


def find_damage(path: Path, seconds: float) -> str | None:
    """What SQLite finds wrong with a file; None if nothing was found within `seconds`."""
    connection = connect_to_read(path)
    deadline = time.monotonic() + seconds
    connection.set_progress_handler(lambda: time.monotonic() > deadline, _CHECK_INSTRUCTIONS)
    try:
        messages = [row[0] for row in connection.execute("PRAGMA quick_check(3)")]
    except sqlite3.OperationalError as error:
        return None if "interrupted" in str(error) else str(error)
    except (sqlite3.Error, UnicodeDecodeError) as error:  # it quotes names, which need not be text
        return str(error)
    finally:
        connection.close()
    return None if messages == ["ok"] else "; ".join(messages)
