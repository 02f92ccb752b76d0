"""Reads and writes the events and arrays of a SQLite store."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from stepscope.schema.record import Event, StoredArray
from stepscope.store.sqlite.checksums import (
    check,
    check_count,
    checksum,
    checksum_columns,
    has_checksums,
    row_count,
    row_counts_by_prefix,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection

    from numpy.typing import NDArray

COUNT_PREFIX = "event/"
"""The prefix of event counts, before their kind."""


def write_event(connection: sqlite3.Connection, run_id: str, event: Event) -> None:
    """Stores an event."""
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
    """The events of a run, of some kinds or of all, oldest first."""
    kind_filter = "" if kinds is None else f" AND kind IN ({', '.join('?' * len(kinds))})"
    rows = _rows(connection, f"WHERE run_id = ?{kind_filter} ORDER BY time_ns, id", (run_id, *(kinds or ())))
    counts = row_counts_by_prefix(connection, run_id, COUNT_PREFIX)
    if counts is not None:
        expected = sum(count for kind, count in counts.items() if kinds is None or kind in kinds)
        check_count("event", len(rows), expected)
    return [event for _, event in rows]


def read_events_since(connection: sqlite3.Connection, run_id: str, after: int) -> list[tuple[int, Event]]:
    """The events of a run that were stored after event number `after`, with their numbers."""
    return _rows(connection, "WHERE run_id = ? AND id > ? ORDER BY id", (run_id, after))


def _rows(
    connection: sqlite3.Connection, condition: str, values: tuple[object, ...]
) -> list[tuple[int, Event]]:
    newer = "by_user, checksum" if has_checksums(connection) else "0, NULL"
    rows = connection.execute(
        f"SELECT id, run_id, segment, rank, kind, time_ns, step, fields, {newer} FROM event {condition}",  # noqa: S608 - question marks alone
        values,
    )
    return [_event(*row) for row in rows]


def _event(number: int, *columns: str | int | None) -> tuple[int, Event]:
    *row, expected = columns
    check("event", expected, *row)  # type: ignore[arg-type]  # as the tables have it
    _, segment, rank, kind, time_ns, step, fields, by_user = row
    event = Event(kind, time_ns, step, rank, segment, json.loads(fields), bool(by_user))  # type: ignore[arg-type]
    return number, event


def write_array(
    connection: sqlite3.Connection, owner: tuple[str, str, int], fields: dict[str, Any], raw: bytes
) -> None:
    """Stores an array of a run, segment and rank; `fields` has key, step, time, dtype and shape."""
    key, step, text = fields["key"], fields["step"], json.dumps(fields)
    connection.execute(
        "INSERT INTO array (run_id, segment, rank, key, time_ns, step, fields, data, checksum)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (*owner, key, fields["time"], step, text, raw, checksum(owner[0], key, step, text, crc32(raw))),
    )


def read_arrays(
    connection: sqlite3.Connection, run_id: str, key: str
) -> list[tuple[int | None, NDArray[np.generic]]]:
    """Steps and arrays logged under a key, oldest first."""
    rows = connection.execute(
        f"SELECT step, fields, data, {checksum_columns(connection, 'array')} FROM array"  # noqa: S608 - no part of it comes from outside
        " WHERE run_id = ? AND key = ? ORDER BY id",
        (run_id, key),
    ).fetchall()
    check_count("array", len(rows), row_count(connection, run_id, f"array/{key}"))
    arrays = []
    for step, text, data, expected in rows:
        check("array", expected, run_id, key, step, text, crc32(data))
        fields = json.loads(text)
        arrays.append((step, np.frombuffer(data, fields["dtype"]).reshape(fields["shape"])))
    return arrays


def read_array_numbers(connection: sqlite3.Connection, run_id: str) -> list[int]:
    """The numbers of the arrays of a run, in the order they were stored."""
    rows = connection.execute("SELECT id FROM array WHERE run_id = ? ORDER BY id", (run_id,)).fetchall()
    counts = row_counts_by_prefix(connection, run_id, "array/")
    if counts is not None:
        check_count("array", len(rows), sum(counts.values()))
    return [number for (number,) in rows]


def read_array(connection: sqlite3.Connection, run_id: str, number: int) -> StoredArray | None:
    """One array; None where it was deleted meanwhile."""
    row = connection.execute(
        f"SELECT segment, rank, key, time_ns, step, fields, data, {checksum_columns(connection, 'array')}"  # noqa: S608 - no part of it comes from outside
        " FROM array WHERE run_id = ? AND id = ?",
        (run_id, number),
    ).fetchone()
    if row is None:
        return None
    segment, rank, key, time_ns, step, text, data, expected = row
    check("array", expected, run_id, key, step, text, crc32(data))
    fields = json.loads(text)
    values = np.frombuffer(data, fields["dtype"]).reshape(fields["shape"])
    return StoredArray(segment, rank, key, step, time_ns, values)
