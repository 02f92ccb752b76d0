"""The findings of a SQLite store: a row for each problem of a run, opened and closed as it comes and goes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from stepscope.store.checksums import check, check_count, checksum_columns, put_checksum, row_count

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping

_COLUMNS = "id, run_id, problem, severity, opened_ns, closed_ns, fields"


def read_findings(connection: sqlite3.Connection, run_id: str) -> list[dict[str, Any]]:
    """The findings of a run, oldest first, as they were stored.

    Rows without a key, which other programs wrote, are returned with their columns.
    """
    rows = connection.execute(
        f"SELECT {_COLUMNS}, {checksum_columns(connection, 'finding')} FROM finding"  # noqa: S608 - no part of it comes from outside
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
        put_checksum(connection, "finding", _COLUMNS, cursor.lastrowid)
        return
    number, first_time, first_step = existing
    fields = {**finding, "first_time": first_time, "first_step": first_step}
    connection.execute(
        "UPDATE finding SET severity = ?, closed_ns = NULL, fields = ? WHERE id = ?",
        (finding["severity"], json.dumps(fields, allow_nan=False), number),
    )
    put_checksum(connection, "finding", _COLUMNS, number)


def clear_finding(connection: sqlite3.Connection, run_id: str, key: str, at_ns: int) -> None:
    """Closes a finding."""
    numbers = connection.execute(
        "SELECT id FROM finding WHERE run_id = ? AND closed_ns IS NULL AND json_extract(fields, '$.key') = ?",
        (run_id, key),
    ).fetchall()
    for (number,) in numbers:
        connection.execute("UPDATE finding SET closed_ns = ? WHERE id = ?", (at_ns, number))
        put_checksum(connection, "finding", _COLUMNS, number)
