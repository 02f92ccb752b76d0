"""Reads and writes the events of a SQLite store."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from stepscope.schema.record import Event
from stepscope.store import tables

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection

KNOWS_USERS = 3
"""A file of an earlier version does not say which events are the user's."""


def write_event(connection: sqlite3.Connection, run_id: str, event: Event) -> None:
    """Notes an event."""
    connection.execute(
        "INSERT INTO event (run_id, segment, rank, kind, time_ns, step, fields, by_user)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            run_id,
            event.segment,
            event.rank,
            event.kind,
            event.time_ns,
            event.step,
            json.dumps(event.fields),
            event.by_user,
        ),
    )


def read_events(
    connection: sqlite3.Connection, run_id: str, kinds: Collection[str] | None = None
) -> list[Event]:
    """What happened in a run, of some kinds or of all, oldest first."""
    wanted = "" if kinds is None else f" AND kind IN ({', '.join('?' * len(kinds))})"
    rows = _rows(connection, f"WHERE run_id = ?{wanted} ORDER BY time_ns, id", (run_id, *(kinds or ())))
    return [event for _, event in rows]


def read_events_since(connection: sqlite3.Connection, run_id: str, after: int) -> list[tuple[int, Event]]:
    """The events of a run that were stored after the one of a number, with their own numbers."""
    return _rows(connection, "WHERE run_id = ? AND id > ? ORDER BY id", (run_id, after))


def _rows(
    connection: sqlite3.Connection, condition: str, values: tuple[object, ...]
) -> list[tuple[int, Event]]:
    by_user = "by_user" if tables.version_of(connection) >= KNOWS_USERS else "0"
    rows = connection.execute(
        f"SELECT id, kind, time_ns, step, rank, segment, fields, {by_user} FROM event {condition}",  # noqa: S608 - question marks alone
        values,
    )
    return [
        (number, Event(kind, time_ns, step, rank, segment, json.loads(fields), bool(of_user)))
        for number, kind, time_ns, step, rank, segment, fields, of_user in rows
    ]
