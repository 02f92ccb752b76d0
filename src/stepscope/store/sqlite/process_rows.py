"""Reads and writes the processes of a SQLite store."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from stepscope.schema.identity import run_id
from stepscope.schema.run import Process
from stepscope.store.sqlite.checksums import (
    DamagedRowError,
    check,
    check_count,
    checksum,
    checksum_columns,
    row_count,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from stepscope.store.sqlite.checksums import Column

_COLUMNS = (
    "segment, rank, host, pid, role, status, reason, exit_code, started_ns, ended_ns, last_ns,"
    " dropped, lost, facts"
)
_LAST_NS = 11
"""The index of `last_ns` in a row that begins with the run."""
_BY_KEY = "run_id = ? AND segment = ? AND rank = ? AND host = ? AND pid = ? AND started_ns = ?"


def read_processes(connection: sqlite3.Connection, run_id: str | None = None) -> list[Process]:
    """The processes of a run, or of all runs, in the order they were first stored."""
    rows = connection.execute(
        f"SELECT run_id, name, project, {_COLUMNS}, {checksum_columns(connection, 'process')} FROM process"  # noqa: S608 - no part of it comes from outside
        " JOIN run ON run.id = run_id WHERE ? IS NULL OR run_id = ? ORDER BY process.id",
        (run_id, run_id),
    )
    processes = [_process(row) for row in rows]
    check_count("process", len(processes), row_count(connection, run_id or "", "process"))
    return processes


def read_runs(connection: sqlite3.Connection) -> list[tuple[str, str, str, int]]:
    """Id, name, project and first start of every run, oldest first."""
    rows = connection.execute(
        f"SELECT id, name, project, created_ns, {checksum_columns(connection, 'run')} FROM run"  # noqa: S608 - no part of it comes from outside
        " ORDER BY created_ns, id"
    ).fetchall()
    for *row, expected in rows:
        check("run", expected, *row)
    check_count("run", len(rows), row_count(connection, "", "run"))
    return [row[:4] for row in rows]


class ProcessWriter:
    """Writes processes for the one connection that may write.

    While a process logs, only the time of its last record changes, several times a second.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._written: dict[tuple[object, ...], tuple[int, Process, int]] = {}
        """Row id, contents, and checksum of all but the time, of each process that has not ended."""

    def write(self, process: Process) -> None:
        """Stores a process, or its new status."""
        key = (process.run_id, process.segment, process.rank, process.host, process.pid, process.started_ns)
        row_id, written, stable_checksum = self._written.get(key, (0, None, 0))
        if written is not None:
            written.last_ns = process.last_ns
            if written == process:
                self._connection.execute(
                    "UPDATE process SET last_ns = ?, checksum = ? WHERE id = ?",
                    (process.last_ns, checksum(process.last_ns, start=stable_checksum), row_id),
                )
                return
        row = _row(process)
        _write_process(self._connection, process, row)
        (row_id,) = self._connection.execute(f"SELECT id FROM process WHERE {_BY_KEY}", key).fetchone()  # noqa: S608 - nor here
        self._written[key] = (row_id, deepcopy(process), _stable_checksum(row))
        if process.ended_ns is not None:
            del self._written[key]

    def clear(self) -> None:
        """Clears the cache, when a transaction failed or a run was deleted."""
        self._written.clear()


def _checksum(row: Sequence[Column]) -> int:
    """The checksum of a row, with `last_ns` at its end: nothing else changes often."""
    return checksum(row[_LAST_NS], start=_stable_checksum(row))


def _stable_checksum(row: Sequence[Column]) -> int:
    return checksum(*row[:_LAST_NS], *row[_LAST_NS + 1 :])


def _row(process: Process) -> tuple[Column, ...]:
    return (
        process.run_id,
        process.segment,
        process.rank,
        process.host,
        process.pid,
        process.role,
        process.status,
        process.reason,
        process.exit_code,
        process.started_ns,
        process.ended_ns,
        process.last_ns,
        process.dropped,
        process.lost,
        json.dumps(process.facts),
    )


def _write_process(connection: sqlite3.Connection, process: Process, row: tuple[Column, ...]) -> None:
    _write_run(connection, process)
    connection.execute(
        f"INSERT INTO process (run_id, {_COLUMNS}, checksum)"  # noqa: S608 - no part of it comes from outside
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET role = excluded.role, status = excluded.status, reason = excluded.reason,"
        " exit_code = excluded.exit_code, ended_ns = excluded.ended_ns, last_ns = excluded.last_ns,"
        " dropped = excluded.dropped, lost = excluded.lost, facts = excluded.facts,"
        " checksum = excluded.checksum",
        (*row, _checksum(row)),
    )


def _write_run(connection: sqlite3.Connection, process: Process) -> None:
    existing = connection.execute(
        "SELECT name, created_ns FROM run WHERE id = ?", (process.run_id,)
    ).fetchone()
    # A run whose opening was damaged is named by its id until an opening is read, and a run that a launcher
    # has started is named by the launcher until a monitor in its command names it.
    is_renamed = run_id(process.project, process.name) != process.run_id
    if existing is not None and (
        process.name in (existing[0], process.run_id) or not (is_renamed or existing[0] == process.run_id)
    ):
        return
    row = (
        process.run_id,
        process.name,
        process.project,
        process.started_ns if existing is None else existing[1],
    )
    connection.execute(
        "INSERT INTO run VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET name = excluded.name,"
        " project = excluded.project, checksum = excluded.checksum",
        (*row, checksum(*row)),
    )


def _process(row: tuple[Any, ...]) -> Process:
    names = ["run_id", "name", "project", *_COLUMNS.split(", ")]
    *columns, expected = row
    if expected is not None and expected != _checksum((row[0], *columns[3:])):
        raise DamagedRowError("a row of the table process is not what was written")
    fields = dict(zip(names, columns, strict=True))
    return Process(**{**fields, "facts": json.loads(fields["facts"])})
