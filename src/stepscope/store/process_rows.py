"""Reads and writes the processes of a SQLite store."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from stepscope.schema.run import Process

if TYPE_CHECKING:
    import sqlite3

_COLUMNS = (
    "segment, rank, host, pid, role, status, reason, exit_code, started_ns, ended_ns, last_ns,"
    " dropped, lost, facts"
)


def read_processes(connection: sqlite3.Connection, run_id: str | None = None) -> list[Process]:
    """The processes of a run, or of all, in the order they were met."""
    rows = connection.execute(
        f"SELECT run_id, name, project, {_COLUMNS} FROM process JOIN run ON run.id = run_id"  # noqa: S608 - no part of it comes from outside
        " WHERE ? IS NULL OR run_id = ? ORDER BY process.id",
        (run_id, run_id),
    )
    return [_process(row) for row in rows]


def write_process(connection: sqlite3.Connection, process: Process) -> None:
    """Notes a process, or what has become of it."""
    connection.execute(
        "INSERT INTO run VALUES (?, ?, ?, ?)"
        # A run whose opening was damaged is named by its id until an opening is read.
        " ON CONFLICT DO UPDATE SET name = excluded.name, project = excluded.project WHERE name = id",
        (process.run_id, process.name, process.project, process.started_ns),
    )
    connection.execute(
        f"INSERT INTO process (run_id, {_COLUMNS})"  # noqa: S608 - no part of it comes from outside
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET status = excluded.status, reason = excluded.reason,"
        " exit_code = excluded.exit_code, ended_ns = excluded.ended_ns, last_ns = excluded.last_ns,"
        " dropped = excluded.dropped, lost = excluded.lost, facts = excluded.facts",
        (
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
        ),
    )


def _process(row: tuple[Any, ...]) -> Process:
    names = ["run_id", "name", "project", *_COLUMNS.split(", ")]
    fields = dict(zip(names, row, strict=True))
    return Process(**{**fields, "facts": json.loads(fields["facts"])})
