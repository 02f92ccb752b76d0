"""Reads and writes the events of a SQLite store."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from stepscope.schema.record import Event
from stepscope.store.checksums import are_kept, check, check_count, checksum, counted_between

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection

PREFIX = "event/"
"""Of the counts of events, before their kind."""


def write_event(connection: sqlite3.Connection, run_id: str, event: Event) -> None:
    """Notes an event."""
    row = (
        run_id,
        event.segment,
        event.rank,
        event.kind,
        event.time_ns,
        event.step,
        json.dumps(event.fields),
        int(event.by_user),
    )
    connection.execute(
        "INSERT INTO event (run_id, segment, rank, kind, time_ns, step, fields, by_user, checksum)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (*row, checksum(*row)),
    )


def read_events(
    connection: sqlite3.Connection, run_id: str, kinds: Collection[str] | None = None
) -> list[Event]:
    """What happened in a run, of some kinds or of all, oldest first."""
    wanted = "" if kinds is None else f" AND kind IN ({', '.join('?' * len(kinds))})"
    rows = _rows(connection, f"WHERE run_id = ?{wanted} ORDER BY time_ns, id", (run_id, *(kinds or ())))
    counts = counted_between(connection, run_id, PREFIX)
    if counts is not None:
        expected = sum(count for kind, count in counts.items() if kinds is None or kind in kinds)
        check_count("event", len(rows), expected)
    return [event for _, event in rows]


def read_events_since(connection: sqlite3.Connection, run_id: str, after: int) -> list[tuple[int, Event]]:
    """The events of a run that were stored after the one of a number, with their own numbers."""
    return _rows(connection, "WHERE run_id = ? AND id > ? ORDER BY id", (run_id, after))


def _rows(
    connection: sqlite3.Connection, condition: str, values: tuple[object, ...]
) -> list[tuple[int, Event]]:
    added = "by_user, checksum" if are_kept(connection) else "0, NULL"
    rows = connection.execute(
        f"SELECT id, run_id, segment, rank, kind, time_ns, step, fields, {added} FROM event {condition}",  # noqa: S608 - question marks alone
        values,
    )
    return [_event(*row) for row in rows]


def _event(number: int, *columns: str | int | None) -> tuple[int, Event]:
    *row, found = columns
    check("event", found, *row)  # type: ignore[arg-type]  # as the tables have it
    _, segment, rank, kind, time_ns, step, fields, by_user = row
    event = Event(kind, time_ns, step, rank, segment, json.loads(fields), bool(by_user))  # type: ignore[arg-type]
    return number, event
