"""Stores what people add to runs in a file of its own, which the web server and `stepscope diagnose` write.

The store has one writer, the agent, which need not run while people look at a store, and a store may be
read-only or replaced by a copy; what people wrote must survive that.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sqlite3
import threading
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

from stepscope.errors import StoreError
from stepscope.store.mark_store import Feedback, Mark, MarkStore, Note

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILE_NAME = "page.sqlite"

_VERSION_1 = """
CREATE TABLE mark (
    run_id      TEXT PRIMARY KEY,
    name        TEXT,
    tags        TEXT NOT NULL DEFAULT '[]',
    archived    INTEGER NOT NULL DEFAULT 0,
    colour      TEXT,
    muted       TEXT NOT NULL DEFAULT '[]'
);
CREATE TABLE note (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    run_id      TEXT NOT NULL,
    step        INTEGER,
    time        REAL,
    text        TEXT NOT NULL,
    made        REAL NOT NULL
);
CREATE INDEX note_by_run ON note (run_id);
CREATE TABLE layout (
    page        TEXT PRIMARY KEY,
    document    TEXT NOT NULL
);
"""

_VERSION_2 = """
CREATE TABLE feedback (
    project     TEXT NOT NULL,
    finding     TEXT NOT NULL,
    opinion     TEXT NOT NULL,
    run_id      TEXT NOT NULL,
    headline    TEXT NOT NULL,
    note        TEXT NOT NULL,
    made        REAL NOT NULL,
    PRIMARY KEY (project, finding)
);
"""

MIGRATIONS = (_VERSION_1, _VERSION_2)
"""The statements that upgrade each version to the next; a released one is never edited."""

_SETTINGS = (
    "PRAGMA busy_timeout = 5000; PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;"
    "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
)


class SqliteMarks(MarkStore):
    """The database of marks, created at the first write. One connection, one writer at a time."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE_NAME
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._cache: dict[str, Mark] = {}
        self._feedback_cache: dict[str, tuple[Feedback, ...]] = {}
        self._changes = 0
        self._foreign_changes = 0

    @property
    def changes(self) -> int:
        """Increases with every change, also by another process, so that caches know when to read again."""
        with contextlib.suppress(StoreError):  # whoever reads next gets the error
            self._forget_what_others_changed()
        return self._changes

    def of(self, run_id: str) -> Mark:
        """All marks of a run."""
        cache = self._cache  # a change during the read puts another in its place
        mark = cache.get(run_id)
        if mark is None:
            rows = self._read("SELECT name, tags, archived, colour, muted FROM mark WHERE run_id = ?", run_id)
            mark = cache[run_id] = _mark(*rows[0]) if rows else Mark()
        return mark

    def notes(self, run_id: str) -> tuple[Note, ...]:
        """Its notes, oldest first."""
        rows = self._read(
            "SELECT id, run_id, step, time, text, made FROM note WHERE run_id = ? ORDER BY id", run_id
        )
        return tuple(Note(*row) for row in rows)

    def feedback(self, project: str) -> tuple[Feedback, ...]:
        """The opinions on findings in a project, ordered by the finding."""
        self._forget_what_others_changed()
        cache = self._feedback_cache
        known = cache.get(project)
        if known is None:
            rows = self._read(
                "SELECT project, finding, opinion, run_id, headline, note, made FROM feedback "
                "WHERE project = ? ORDER BY finding",
                project,
            )
            known = cache[project] = tuple(Feedback(*row) for row in rows)
        return known

    def give_feedback(self, feedback: Feedback) -> None:
        """Saves an opinion; it replaces an earlier one on the same finding."""
        with self._writing() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO feedback (project, finding, opinion, run_id, headline, note, made) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                astuple(feedback),
            )

    def withdraw_feedback(self, project: str, finding: str) -> bool:
        """Deletes an opinion; False where there is none."""
        with self._writing() as connection:
            cursor = connection.execute(
                "DELETE FROM feedback WHERE project = ? AND finding = ?", (project, finding)
            )
            return cursor.rowcount > 0

    def layout(self, page: str) -> dict[str, Any]:
        """The saved layout of a page; empty where there is none."""
        rows = self._read("SELECT document FROM layout WHERE page = ?", page)
        return dict(json.loads(rows[0][0])) if rows else {}

    def change(self, run_id: str, **changes: Any) -> None:
        """Saves new values for any of name, tags, archived, colour, muted."""
        fields = Mark.__dataclass_fields__
        columns = {name: _packed(value) for name, value in changes.items() if name in fields}
        with self._writing() as connection:
            connection.execute("INSERT OR IGNORE INTO mark (run_id) VALUES (?)", (run_id,))
            for column, value in columns.items():
                connection.execute(
                    f"UPDATE mark SET {column} = ? WHERE run_id = ?",  # noqa: S608 - a field of Mark
                    (value, run_id),
                )

    def add_note(self, run_id: str, text: str, *, step: int | None, time: float | None, made: float) -> Note:
        """Saves a note."""
        with self._writing() as connection:
            cursor = connection.execute(
                "INSERT INTO note (run_id, step, time, text, made) VALUES (?, ?, ?, ?, ?)",
                (run_id, step, time, text, made),
            )
            return Note(int(cursor.lastrowid or 0), run_id, step, time, text, made)

    def remove_note(self, run_id: str, note_id: int) -> bool:
        """Deletes a note; False where the run has no note with that id."""
        with self._writing() as connection:
            cursor = connection.execute("DELETE FROM note WHERE id = ? AND run_id = ?", (note_id, run_id))
            return cursor.rowcount > 0

    def set_layout(self, page: str, document: dict[str, Any]) -> None:
        """Saves the layout of a page."""
        with self._writing() as connection:
            connection.execute("INSERT OR REPLACE INTO layout VALUES (?, ?)", (page, json.dumps(document)))

    def close(self) -> None:
        """Closes the file."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _read(self, query: str, value: str) -> list[tuple[Any, ...]]:
        with self._lock, self._as_store_error():
            connection = self._connect(create=False)
            return [] if connection is None else connection.execute(query, (value,)).fetchall()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._as_store_error():
            connection = self._connect(create=True)
            assert connection is not None  # noqa: S101 - it was created if there was none
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise
            self._forget()

    def _forget(self) -> None:
        self._changes += 1
        self._cache, self._feedback_cache = {}, {}

    def _forget_what_others_changed(self) -> None:
        """Empties the caches if another process has written: `stepscope diagnose --wrong` beside a server."""
        with self._lock, self._as_store_error():
            connection = self._connect(create=False)
            if connection is None:
                return
            version = int(connection.execute("PRAGMA data_version").fetchone()[0])
            if version != self._foreign_changes:
                self._foreign_changes = version
                self._forget()

    @contextlib.contextmanager
    def _as_store_error(self) -> Iterator[None]:
        try:
            yield
        except PermissionError as error:
            raise StoreError(
                f"{self._path} belongs to another user; only they can change names, notes and opinions."
            ) from error
        except (sqlite3.Error, OSError, ValueError) as error:
            raise StoreError(
                f"{self._path} cannot be used: {error}. Move it away to start again without names and notes."
            ) from error

    def _connect(self, *, create: bool) -> sqlite3.Connection | None:
        if self._connection is None:
            if not create and not self._path.exists():
                return None
            _make_private(self._path)
            connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
            try:
                connection.executescript(_SETTINGS)
                _migrate(connection, self._path)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection


def _make_private(path: Path) -> None:
    """Creates the file before SQLite does, so that other users can never read it.

    A file that is there is not opened: closing it would end the locks of other connections of this process.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink():
        raise OSError(errno.ELOOP, "It is a symbolic link", str(path))
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    path.chmod(0o600)


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version > len(MIGRATIONS):
        raise StoreError(
            f"{path} has version {version}, this stepscope knows up to {len(MIGRATIONS)}. "
            "Upgrade with: pip install -U stepscope"
        )
    for number in range(version, len(MIGRATIONS)):
        script = MIGRATIONS[number]
        connection.executescript(f"BEGIN IMMEDIATE; {script} PRAGMA user_version = {number + 1}; COMMIT;")


def _mark(name: str | None, tags: str, archived: int, colour: str | None, muted: str) -> Mark:
    return Mark(name, tuple(json.loads(tags)), bool(archived), colour, frozenset(json.loads(muted)))


def _packed(value: Any) -> Any:
    if isinstance(value, list | tuple | set | frozenset):
        return json.dumps(sorted(set(value)) if isinstance(value, set | frozenset) else list(value))
    return int(value) if isinstance(value, bool) else value
