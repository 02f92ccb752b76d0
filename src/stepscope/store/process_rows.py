"""Reads and writes the processes of a SQLite store."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from stepscope.schema.run import Process
from stepscope.store.checksums import check, check_count, checksum, columns_for, counted

if TYPE_CHECKING:
    import sqlite3

_COLUMNS = (
    "segment, rank, host, pid, role, status, reason, exit_code, started_ns, ended_ns, last_ns,"
    " dropped, lost, facts"
)


def read_processes(connection: sqlite3.Connection, run_id: str | None = None) -> list[Process]:
    """The processes of a run, or of all, in the order they were met."""
    rows = connection.execute(
        f"SELECT run_id, name, project, {_COLUMNS}, {columns_for(connection, 'process')} FROM process"  # noqa: S608 - no part of it comes from outside
        " JOIN run ON run.id = run_id WHERE ? IS NULL OR run_id = ? ORDER BY process.id",
        (run_id, run_id),
    )
    found = [_process(row) for row in rows]
    check_count("process", len(found), counted(connection, run_id or "", "process"))
    return found


def read_runs(connection: sqlite3.Connection) -> list[tuple[str, str, str, int]]:
    """Id, name, project and first start of every run, oldest first."""
    rows = connection.execute(
        f"SELECT id, name, project, created_ns, {columns_for(connection, 'run')} FROM run"  # noqa: S608 - no part of it comes from outside
        " ORDER BY created_ns, id"
    ).fetchall()
    for *row, found in rows:
        check("run", found, *row)
    check_count("run", len(rows), counted(connection, "", "run"))
    return [row[:4] for row in rows]


def write_process(connection: sqlite3.Connection, process: Process) -> None:
    """Notes a process, or what has become of it."""
    _write_run(connection, process)
    row = (
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
    connection.execute(
        f"INSERT INTO process (run_id, {_COLUMNS}, checksum)"  # noqa: S608 - no part of it comes from outside
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET role = excluded.role, status = excluded.status, reason = excluded.reason,"
        " exit_code = excluded.exit_code, ended_ns = excluded.ended_ns, last_ns = excluded.last_ns,"
        " dropped = excluded.dropped, lost = excluded.lost, facts = excluded.facts,"
        " checksum = excluded.checksum",
        (*row, checksum(*row)),
    )


def _write_run(connection: sqlite3.Connection, process: Process) -> None:
    known = connection.execute("SELECT name, created_ns FROM run WHERE id = ?", (process.run_id,)).fetchone()
    # A run whose opening was damaged is named by its id until an opening is read.
    if known is not None and (known[0] != process.run_id or process.name == process.run_id):
        return
    row = (process.run_id, process.name, process.project, process.started_ns if known is None else known[1])
    connection.execute(
        "INSERT INTO run VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET name = excluded.name,"
        " project = excluded.project, checksum = excluded.checksum",
        (*row, checksum(*row)),
    )


def _process(row: tuple[Any, ...]) -> Process:
    names = ["run_id", "name", "project", *_COLUMNS.split(", ")]
    *columns, found = row
    check("process", found, row[0], *columns[3:])
    fields = dict(zip(names, columns, strict=True))
    return Process(**{**fields, "facts": json.loads(fields["facts"])})
