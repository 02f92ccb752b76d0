"""Opens SQLite files as stores, for reading or writing, and refuses other files."""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
from pathlib import Path

from stepscope.errors import NotFound, StoreDamaged, StoreError, StoreUnavailable
from stepscope.filesystem import share
from stepscope.store.sqlite import log_check, tables

_READING = (
    "PRAGMA busy_timeout = 5000; PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;"
    "PRAGMA query_only = ON;"
)
IN_MEMORY = Path(":memory:")
"""Instead of the path of a file: a store in memory, which is gone when it is closed."""

DAMAGED_SUFFIX = ".damaged"
"""The suffix of the copy of a damaged log, made before SQLite overwrites it."""

MAX_BLOB_BYTES = 512 * 1024 * 1024
"""No row of ours is longer; a forged file must not make a reader allocate more."""

MAX_QUOTED = 200

_DAMAGE = (sqlite3.Error, UnicodeDecodeError)
"""Errors from opening a damaged file; SQLite's own message may contain bytes that are not text."""

# FULL: a journal is deleted once its rows are committed, so they must survive a power loss.
_WRITING = (
    "PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL;"
    "PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA temp_store = MEMORY;"
)


def store_error(text: str, error: BaseException) -> StoreError:
    """What callers of a store get instead of an error of SQLite, by what they can do about it."""
    if isinstance(error, sqlite3.OperationalError):
        return StoreUnavailable(text)
    if type(error) is sqlite3.DatabaseError:  # its subclasses are not about the file
        return StoreDamaged(text)
    return StoreError(text)


def connect_to_write(path: Path) -> sqlite3.Connection:
    """Opens a store, or creates it; refuses one of a newer version before changing it."""
    if path == IN_MEMORY:
        connection = sqlite3.connect(IN_MEMORY, isolation_level=None, check_same_thread=False)
        connection.executescript(_WRITING)
        tables.migrate(connection)
        return connection
    expected = log_check.commits_on_disk(path) if path.exists() else 0
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _delete_foreign_log(path)
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    except (OSError, sqlite3.Error) as error:
        raise store_error(f"{path} cannot be opened as a store: {_on_one_line(error)}.", error) from error
    try:
        connection.execute("PRAGMA busy_timeout = 5000")
        tables.check_before_writing(connection, path)
        if (_has_log(path) and log_check.is_damaged(path)) or _missing_commits(connection, expected):
            # SQLite continues after the intact part; the rest is copied, so that its loss can be reported.
            _keep_log(path)
        if not path.exists():
            path.touch()
        share(path, path.parent)  # before there is a log, to which SQLite gives the same permissions
        connection.executescript(_WRITING)
        tables.migrate(connection)
    except (*_DAMAGE, OSError) as error:
        connection.close()
        raise store_error(f"{path} cannot be opened as a store: {_on_one_line(error)}.", error) from error
    except StoreError:
        connection.close()
        raise
    return connection


def _delete_foreign_log(path: Path) -> None:
    """Deletes an empty write-ahead log that another user's reader has left and this user may not write."""
    beside = [path.with_name(path.name + suffix) for suffix in ("-wal", "-shm")]
    files = [file for file in beside if file.exists()]
    is_foreign = any(not os.access(file, os.W_OK, effective_ids=True) for file in files)
    if is_foreign and not any(file.name.endswith("-wal") and file.stat().st_size for file in files):
        for file in files:
            file.unlink()


def connect_to_read(path: Path) -> sqlite3.Connection:
    """Opens a store that another process may be writing, or one in a read-only folder."""
    if not path.exists():
        raise NotFound(
            f"There is no store at {path}. Record a run first, or name another folder with --store or "
            "STEPSCOPE_DIR."
        )
    if not os.access(path, os.R_OK):
        raise StoreError(
            f"{path} may not be read by this user; it belongs to {_owner(path)}. Ask for read access to the "
            "folder, or name another one with STEPSCOPE_DIR."
        )
    expected = log_check.commits_on_disk(path)
    try:
        return _open(path, "mode=ro", expected)
    except _DAMAGE as error:
        if os.access(path.parent, os.W_OK):
            raise store_error(
                f"{path} cannot be read as a store: {_on_one_line(error)}. {tables.RESTORE}", error
            ) from error
    # In a read-only folder the log's index cannot be created: the file is read as immutable, without its log.
    if _has_log(path):
        raise StoreError(
            f"{path} was not closed by its writer, and its newest rows cannot be read in a folder "
            "where nothing may be written. Copy the folder to another place and open it there."
        )
    try:
        return _open(path, "mode=ro&immutable=1", expected)
    except _DAMAGE as error:
        raise store_error(f"{path} cannot be read as a store: {_on_one_line(error)}.", error) from error


def _open(path: Path, mode: str, expected: int) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?{mode}",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        if sys.version_info >= (3, 11):
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_BLOB_BYTES)
        connection.executescript(_READING)
        _refuse_damaged_log(connection, path, expected)
        tables.check_before_reading(connection, path)
    except (*_DAMAGE, StoreError):
        connection.close()
        raise
    return connection


def _refuse_damaged_log(connection: sqlite3.Connection, path: Path, expected: int) -> None:
    missing = _missing_commits(connection, expected)
    is_damaged = _has_log(path) and log_check.is_damaged(path)
    if missing or is_damaged:
        missing_text = (
            "lacks the last transaction" if missing == 1 else f"lacks the last {missing} transactions"
        )
        problem = "is damaged" if is_damaged else missing_text
        raise StoreError(
            f"{path}-wal {problem}, and the newest records of the store cannot be read. Restore both files "
            "from a copy, or record a run: what is intact is then kept, and the rest copied to "
            f"{path.name}-wal{DAMAGED_SUFFIX}. See: stepscope doctor"
        )


def _missing_commits(connection: sqlite3.Connection, expected: int) -> int:
    """How many transactions were on disk and are missing now."""
    if not expected:
        return 0
    # A file without the tables of this version lacks all of them: the tables come before the first count.
    return max(expected - log_check.commits_in(connection), 0)


def _keep_log(path: Path) -> None:
    copy = f"{path}-wal{DAMAGED_SUFFIX}"
    try:
        shutil.copyfile(f"{path}-wal", copy)
    except FileNotFoundError:
        Path(copy).touch()


def _owner(path: Path) -> str:
    try:
        return path.owner()
    except (KeyError, OSError):
        return f"user {path.stat().st_uid}"


def _on_one_line(error: Exception) -> str:
    """The message of SQLite, on one short line: it may quote the contents of a damaged file."""
    text = " ".join(str(error).split())
    return text if len(text) <= MAX_QUOTED else f"{text[:MAX_QUOTED]}…"


def _has_log(path: Path) -> bool:
    log = Path(f"{path}-wal")
    return log.exists() and log.stat().st_size > 0
