"""Reads and writes the alerts, the outbox of notices, and the findings of a SQLite store."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from stepscope.schema.alert import Notice
from stepscope.store.base import AlertBook, OpenAlert, Posted
from stepscope.store.sqlite.checksums import (
    check,
    check_count,
    checksum_columns,
    put_checksum,
    row_count,
    row_count_of_all_runs,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

NOTICES_VERSION = 2
"""A file of an earlier version that has not been written since has no table of notices."""

MAX_DELIVERED_NOTICES = 5_000
"""The most delivered or abandoned notices that are kept."""

_NOTICE_COLUMNS = (
    "id, notice_id, channel, run_id, made_ns, due_ns, attempts, trouble, sent_ns, given_up_ns, told"
)


def read_notices(connection: sqlite3.Connection, run_id: str | None) -> list[dict[str, Any]]:
    """The notices of a run, or of all runs, and their channels; oldest first."""
    if connection.execute("PRAGMA user_version").fetchone()[0] < NOTICES_VERSION:
        return []
    rows = connection.execute(
        f"SELECT {_NOTICE_COLUMNS}, {checksum_columns(connection, 'notice')} FROM notice"  # noqa: S608 - no part of it comes from outside
        " WHERE ? IS NULL OR run_id = ? ORDER BY id",
        (run_id, run_id),
    ).fetchall()
    expected = (
        row_count_of_all_runs(connection, "notice")
        if run_id is None
        else row_count(connection, run_id, "notice")
    )
    check_count("notice", len(rows), expected)
    return [_notice(*row) for row in rows]


def _notice(*columns: Any) -> dict[str, Any]:
    *row, expected = columns
    check("notice", expected, *row)
    named = dict(zip(_NOTICE_COLUMNS.split(", "), row, strict=True))
    shown = ("channel", "attempts", "trouble", "sent_ns", "given_up_ns")
    return {**json.loads(named["told"]), **{name: named[name] for name in shown}}


_ALERT_COLUMNS = "id, run_id, rule, severity, message, fired_ns, resolved_ns, fields"


def read_alerts(connection: sqlite3.Connection, run_id: str) -> list[dict[str, Any]]:
    """The alerts of a run, oldest first."""
    rows = connection.execute(
        f"SELECT {_ALERT_COLUMNS}, {checksum_columns(connection, 'alert')} FROM alert"  # noqa: S608 - no part of it comes from outside
        " WHERE run_id = ? ORDER BY fired_ns, id",
        (run_id,),
    ).fetchall()
    check_count("alert", len(rows), row_count(connection, run_id, "alert"))
    documents = []
    for *row, expected in rows:
        check("alert", expected, *row)
        document = dict(zip(_ALERT_COLUMNS.split(", "), row, strict=True))
        del document["run_id"]
        document.update(json.loads(document.pop("fields")))
        documents.append(document)
    return documents


class SqliteAlertBook(AlertBook):
    """Writes with the connection of the store's one writer, within the caller's transaction."""

    def __init__(
        self, connection: sqlite3.Connection, reading: Callable[[], AbstractContextManager[None]]
    ) -> None:
        """Reads within `reading`, which raises StoreError instead of errors of SQLite."""
        self._connection, self._reading = connection, reading

    def fire(self, alert: OpenAlert) -> int:
        """Stores an alert that fires; returns its number."""
        cursor = self._connection.execute(
            "INSERT INTO alert (run_id, rule, severity, message, fired_ns, resolved_ns, fields)"
            " VALUES (?, ?, ?, ?, ?, NULL, ?)",
            (
                alert.run_id,
                alert.rule,
                alert.severity,
                alert.message,
                alert.fired_ns,
                json.dumps(alert.fields),
            ),
        )
        number = int(cursor.lastrowid or 0)
        put_checksum(self._connection, "alert", _ALERT_COLUMNS, number)
        return number

    def resolve(self, alert_id: int, at_ns: int) -> None:
        """Marks an alert as resolved."""
        self._connection.execute("UPDATE alert SET resolved_ns = ? WHERE id = ?", (at_ns, alert_id))
        put_checksum(self._connection, "alert", _ALERT_COLUMNS, alert_id)

    def add_fields(self, alert_id: int, fields: dict[str, Any]) -> None:
        """Adds fields to an alert."""
        self._connection.execute(
            "UPDATE alert SET fields = json_patch(fields, ?) WHERE id = ?", (json.dumps(fields), alert_id)
        )
        put_checksum(self._connection, "alert", _ALERT_COLUMNS, alert_id)

    def open_alerts(self) -> list[OpenAlert]:
        """The alerts that are not resolved."""
        with self._reading():
            rows = self._connection.execute(
                "SELECT id, run_id, rule, severity, message, fired_ns, fields FROM alert"
                " WHERE resolved_ns IS NULL ORDER BY id"
            )
            return [
                OpenAlert(run_id, rule, severity, message, fired_ns, json.loads(fields), number)
                for number, run_id, rule, severity, message, fired_ns, fields in rows
            ]

    def notified_ns(self, run_id: str, rule: str) -> int | None:
        """When a notice for a rule of a run was last made."""
        with self._reading():
            (notified_ns,) = self._connection.execute(
                "SELECT max(json_extract(fields, '$.notified_ns')) FROM alert WHERE run_id = ? AND rule = ?",
                (run_id, rule),
            ).fetchone()
        return None if notified_ns is None else int(notified_ns)

    def post(self, channel: str, notice: Notice) -> None:
        """Puts a notice into the outbox of a channel, once."""
        cursor = self._connection.execute(
            "INSERT OR IGNORE INTO notice"
            " (notice_id, channel, run_id, made_ns, due_ns, attempts, trouble, told)"
            " VALUES (?, ?, ?, ?, ?, 0, '', ?)",
            (notice.id, channel, notice.run_id, notice.at_ns, notice.at_ns, json.dumps(notice.to_dict())),
        )
        if cursor.rowcount:
            self._check_notice(cursor.lastrowid)

    def undelivered(self) -> list[Posted]:
        """The notices in all outboxes, oldest first."""
        with self._reading():
            rows = self._connection.execute(
                "SELECT id, channel, due_ns, attempts, told FROM notice"
                " WHERE sent_ns IS NULL AND given_up_ns IS NULL ORDER BY id"
            )
            return [
                Posted(number, channel, Notice.from_dict(json.loads(content)), due_ns, attempts)
                for number, channel, due_ns, attempts, content in rows
            ]

    def delivered(self, posted_id: int, at_ns: int) -> None:
        """Marks a notice as delivered, and deletes the oldest ones above the limit."""
        self._connection.execute("UPDATE notice SET sent_ns = ? WHERE id = ?", (at_ns, posted_id))
        self._check_notice(posted_id)
        self._connection.execute(
            "DELETE FROM notice WHERE id <= (SELECT max(id) FROM notice) - ?"
            " AND (sent_ns IS NOT NULL OR given_up_ns IS NOT NULL)",
            (MAX_DELIVERED_NOTICES,),
        )

    def postpone(self, posted_id: int, due_ns: int, trouble: str) -> None:
        """Records a failed attempt, and when to try again."""
        self._connection.execute(
            "UPDATE notice SET due_ns = ?, attempts = attempts + 1, trouble = ? WHERE id = ?",
            (due_ns, trouble, posted_id),
        )
        self._check_notice(posted_id)

    def give_up(self, posted_id: int, at_ns: int, trouble: str) -> None:
        """Marks a notice as abandoned."""
        self._connection.execute(
            "UPDATE notice SET given_up_ns = ?, attempts = attempts + 1, trouble = ? WHERE id = ?",
            (at_ns, trouble, posted_id),
        )
        self._check_notice(posted_id)

    def _check_notice(self, number: int | None) -> None:
        put_checksum(self._connection, "notice", _NOTICE_COLUMNS, number)


_FINDING_COLUMNS = "id, run_id, problem, severity, opened_ns, closed_ns, fields"


def read_findings(connection: sqlite3.Connection, run_id: str) -> list[dict[str, Any]]:
    """The findings of a run, oldest first, as they were stored.

    Rows without a key, which other programs wrote, are returned with their columns.
    """
    rows = connection.execute(
        f"SELECT {_FINDING_COLUMNS}, {checksum_columns(connection, 'finding')} FROM finding"  # noqa: S608 - no part of it comes from outside
        " WHERE run_id = ? ORDER BY opened_ns, id",
        (run_id,),
    ).fetchall()
    check_count("finding", len(rows), row_count(connection, run_id, "finding"))
    findings = []
    for *row, expected in rows:
        check("finding", expected, *row)
        _, _, problem, severity, opened_ns, closed_ns, text = row
        fields = json.loads(text)
        if "key" in fields:
            findings.append({**fields, "open": closed_ns is None})
        else:
            columns = {
                "problem": problem,
                "severity": severity,
                "opened_ns": opened_ns,
                "closed_ns": closed_ns,
            }
            findings.append({**columns, **fields})
    return findings


def put_finding(connection: sqlite3.Connection, run_id: str, finding: Mapping[str, Any], at_ns: int) -> None:
    """Stores or updates a finding and opens it again if it was closed. Its first time and step stay."""
    existing = connection.execute(
        "SELECT id, json_extract(fields, '$.first_time'), json_extract(fields, '$.first_step') FROM finding"
        " WHERE run_id = ? AND problem = ? AND json_extract(fields, '$.key') = ?",
        (run_id, finding["id"], finding["key"]),
    ).fetchone()
    if existing is None:
        cursor = connection.execute(
            "INSERT INTO finding (run_id, problem, severity, opened_ns, closed_ns, fields)"
            " VALUES (?, ?, ?, ?, NULL, ?)",
            (run_id, finding["id"], finding["severity"], at_ns, json.dumps(dict(finding), allow_nan=False)),
        )
        put_checksum(connection, "finding", _FINDING_COLUMNS, cursor.lastrowid)
        return
    number, first_time, first_step = existing
    fields = {**finding, "first_time": first_time, "first_step": first_step}
    connection.execute(
        "UPDATE finding SET severity = ?, closed_ns = NULL, fields = ? WHERE id = ?",
        (finding["severity"], json.dumps(fields, allow_nan=False), number),
    )
    put_checksum(connection, "finding", _FINDING_COLUMNS, number)


def clear_finding(connection: sqlite3.Connection, run_id: str, key: str, at_ns: int) -> None:
    """Closes a finding."""
    numbers = connection.execute(
        "SELECT id FROM finding WHERE run_id = ? AND closed_ns IS NULL AND json_extract(fields, '$.key') = ?",
        (run_id, key),
    ).fetchall()
    for (number,) in numbers:
        connection.execute("UPDATE finding SET closed_ns = ? WHERE id = ?", (at_ns, number))
        put_checksum(connection, "finding", _FINDING_COLUMNS, number)
