"""The tables of the SQLite store, documented in docs/store.md, and the migrations from older versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepscope.errors import NotFound, StoreError

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

_FIRST = """
CREATE TABLE run (
    id          TEXT PRIMARY KEY,
    name        TEXT NOT NULL,
    project     TEXT NOT NULL,
    created_ns  INTEGER NOT NULL
);
CREATE INDEX run_by_name ON run (name);

CREATE TABLE process (
    id          INTEGER PRIMARY KEY,
    run_id      TEXT NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    segment     TEXT NOT NULL,
    rank        INTEGER NOT NULL,
    host        TEXT NOT NULL,
    pid         INTEGER NOT NULL,
    role        TEXT NOT NULL,
    status      TEXT NOT NULL,
    reason      TEXT NOT NULL,
    exit_code   INTEGER,
    started_ns  INTEGER NOT NULL,
    ended_ns    INTEGER,
    last_ns     INTEGER NOT NULL,
    dropped     INTEGER NOT NULL,
    lost        INTEGER NOT NULL,
    facts       TEXT NOT NULL,
    UNIQUE (run_id, segment, rank, host, pid, started_ns)
);

CREATE TABLE series (
    id          INTEGER PRIMARY KEY,
    run_id      TEXT NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    key         TEXT NOT NULL,
    segment     TEXT NOT NULL,
    rank        INTEGER,
    host        TEXT NOT NULL,
    device      TEXT NOT NULL,
    axis        TEXT NOT NULL,
    points      INTEGER NOT NULL DEFAULT 0,
    last        REAL,
    last_step   INTEGER,
    last_ns     INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX series_once ON series (run_id, key, segment, coalesce(rank, -1), host, device, axis);

CREATE TABLE key_set (
    id          INTEGER PRIMARY KEY,
    run_id      TEXT NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    segment     TEXT NOT NULL,
    rank        INTEGER,
    host        TEXT NOT NULL,
    device      TEXT NOT NULL,
    axis        TEXT NOT NULL,
    keys        TEXT NOT NULL,
    blocks      INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX key_set_once ON key_set (run_id, segment, coalesce(rank, -1), host, device, axis, keys);

CREATE TABLE member (
    series_id   INTEGER NOT NULL REFERENCES series (id) ON DELETE CASCADE,
    key_set_id  INTEGER NOT NULL REFERENCES key_set (id) ON DELETE CASCADE,
    position    INTEGER NOT NULL,
    PRIMARY KEY (series_id, key_set_id, position)
) WITHOUT ROWID;
CREATE INDEX member_by_set ON member (key_set_id);

CREATE TABLE tail (
    id          INTEGER PRIMARY KEY,
    key_set_id  INTEGER NOT NULL REFERENCES key_set (id) ON DELETE CASCADE,
    rows        INTEGER NOT NULL,
    data        BLOB NOT NULL
);
CREATE INDEX tail_by_set ON tail (key_set_id);

CREATE TABLE block (
    key_set_id  INTEGER NOT NULL REFERENCES key_set (id) ON DELETE CASCADE,
    number      INTEGER NOT NULL,
    rows        INTEGER NOT NULL,
    steps       BLOB NOT NULL,
    times       BLOB NOT NULL,
    UNIQUE (key_set_id, number)
);

CREATE TABLE chunk (
    series_id   INTEGER NOT NULL REFERENCES series (id) ON DELETE CASCADE,
    key_set_id  INTEGER NOT NULL,
    number      INTEGER NOT NULL,
    rows        INTEGER NOT NULL,
    minimum     REAL,
    maximum     REAL,
    total       REAL,
    first       REAL,
    last        REAL,
    nonfinite   INTEGER NOT NULL,
    data        BLOB NOT NULL
);
CREATE INDEX chunk_by_series ON chunk (series_id, key_set_id, number);

CREATE TABLE node (
    id          INTEGER PRIMARY KEY,
    key_set_id  INTEGER NOT NULL REFERENCES key_set (id) ON DELETE CASCADE,
    level       INTEGER NOT NULL,
    number      INTEGER NOT NULL,
    low         INTEGER NOT NULL,
    high        INTEGER NOT NULL,
    exponent    INTEGER NOT NULL,
    buckets     INTEGER NOT NULL,
    starts      BLOB NOT NULL,
    counts      BLOB NOT NULL,
    times       BLOB NOT NULL,
    UNIQUE (key_set_id, level, number)
);

CREATE TABLE rollup (
    series_id   INTEGER NOT NULL REFERENCES series (id) ON DELETE CASCADE,
    node_id     INTEGER NOT NULL REFERENCES node (id) ON DELETE CASCADE,
    data        BLOB NOT NULL,
    UNIQUE (series_id, node_id)
);
CREATE INDEX rollup_by_node ON rollup (node_id);

CREATE TABLE event (
    id          INTEGER PRIMARY KEY,
    run_id      TEXT NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    segment     TEXT NOT NULL,
    rank        INTEGER,
    kind        TEXT NOT NULL,
    time_ns     INTEGER NOT NULL,
    step        INTEGER,
    fields      TEXT NOT NULL
);
CREATE INDEX event_by_run ON event (run_id, time_ns);

CREATE TABLE array (
    id          INTEGER PRIMARY KEY,
    run_id      TEXT NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    segment     TEXT NOT NULL,
    rank        INTEGER NOT NULL,
    key         TEXT NOT NULL,
    time_ns     INTEGER NOT NULL,
    step        INTEGER,
    fields      TEXT NOT NULL,
    data        BLOB NOT NULL
);
CREATE INDEX array_by_key ON array (run_id, key, step);

CREATE TABLE alert (
    id          INTEGER PRIMARY KEY,
    run_id      TEXT NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    rule        TEXT NOT NULL,
    severity    TEXT NOT NULL,
    message     TEXT NOT NULL,
    fired_ns    INTEGER NOT NULL,
    resolved_ns INTEGER,
    fields      TEXT NOT NULL
);
CREATE INDEX alert_by_run ON alert (run_id, fired_ns);

CREATE TABLE finding (
    id          INTEGER PRIMARY KEY,
    run_id      TEXT NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    problem     TEXT NOT NULL,
    severity    TEXT NOT NULL,
    opened_ns   INTEGER NOT NULL,
    closed_ns   INTEGER,
    fields      TEXT NOT NULL
);
CREATE INDEX finding_by_run ON finding (run_id, opened_ns);

CREATE TABLE journal (
    file_id     INTEGER PRIMARY KEY,
    offset      INTEGER NOT NULL,
    lost        INTEGER NOT NULL
);
"""

_NOTICES = """
CREATE TABLE notice (
    id          INTEGER PRIMARY KEY,
    notice_id   TEXT NOT NULL,
    channel     TEXT NOT NULL,
    run_id      TEXT NOT NULL,
    made_ns     INTEGER NOT NULL,
    due_ns      INTEGER NOT NULL,
    attempts    INTEGER NOT NULL,
    trouble     TEXT NOT NULL,
    sent_ns     INTEGER,
    given_up_ns INTEGER,
    told        TEXT NOT NULL,
    UNIQUE (notice_id, channel)
);
CREATE INDEX notice_by_run ON notice (run_id, made_ns);
CREATE INDEX alert_open ON alert (run_id) WHERE resolved_ns IS NULL;
"""

_CHECKED = """
ALTER TABLE event ADD COLUMN by_user INTEGER NOT NULL DEFAULT 0;
CREATE TABLE set_aside (
    path        TEXT PRIMARY KEY,
    reason      TEXT NOT NULL,
    advice      TEXT NOT NULL,
    since_ns    INTEGER NOT NULL,
    checksum    INTEGER NOT NULL
);

ALTER TABLE key_set ADD COLUMN rows INTEGER;
ALTER TABLE key_set ADD COLUMN sealed INTEGER;
ALTER TABLE key_set ADD COLUMN last BLOB;
ALTER TABLE series ADD COLUMN key_sets INTEGER;
UPDATE key_set SET sealed = (SELECT coalesce(sum(rows), 0) FROM block WHERE key_set_id = key_set.id);
UPDATE key_set SET rows = sealed
    + (SELECT coalesce(sum(tail.rows), 0) FROM tail WHERE key_set_id = key_set.id);
ALTER TABLE member ADD COLUMN nonfinite INTEGER;
ALTER TABLE member ADD COLUMN minimum REAL;
ALTER TABLE member ADD COLUMN maximum REAL;
ALTER TABLE member ADD COLUMN total REAL;
ALTER TABLE member ADD COLUMN checksum INTEGER;
CREATE TEMP TABLE summed AS SELECT series_id, key_set_id, sum(nonfinite) AS nonfinite,
    min(minimum) AS minimum, max(maximum) AS maximum, sum(total) AS total FROM chunk GROUP BY 1, 2;
INSERT OR REPLACE INTO member
    SELECT series_id, key_set_id, position, coalesce(summed.nonfinite, 0), summed.minimum, summed.maximum,
        coalesce(summed.total, 0), NULL FROM member LEFT JOIN summed USING (series_id, key_set_id);
DROP TABLE summed;
UPDATE series SET key_sets = (SELECT count(*) FROM member WHERE series_id = series.id);
ALTER TABLE run ADD COLUMN checksum INTEGER;
ALTER TABLE process ADD COLUMN checksum INTEGER;
ALTER TABLE series ADD COLUMN checksum INTEGER;
ALTER TABLE key_set ADD COLUMN checksum INTEGER;
ALTER TABLE tail ADD COLUMN checksum INTEGER;
ALTER TABLE block ADD COLUMN checksum INTEGER;
ALTER TABLE chunk ADD COLUMN checksum INTEGER;
ALTER TABLE node ADD COLUMN checksum INTEGER;
ALTER TABLE rollup ADD COLUMN checksum INTEGER;
ALTER TABLE event ADD COLUMN checksum INTEGER;
ALTER TABLE array ADD COLUMN checksum INTEGER;
ALTER TABLE alert ADD COLUMN checksum INTEGER;
ALTER TABLE finding ADD COLUMN checksum INTEGER;
ALTER TABLE notice ADD COLUMN checksum INTEGER;
ALTER TABLE journal ADD COLUMN checksum INTEGER;

CREATE TABLE tally (
    run_id      TEXT NOT NULL,
    what        TEXT NOT NULL,
    rows        INTEGER NOT NULL,
    PRIMARY KEY (run_id, what)
) WITHOUT ROWID;
INSERT INTO tally SELECT '', 'run', count(*) FROM run;
INSERT INTO tally SELECT '', 'process', count(*) FROM process;
INSERT INTO tally SELECT run_id, 'process', count(*) FROM process GROUP BY 1, 2;
INSERT INTO tally SELECT run_id, 'alert', count(*) FROM alert GROUP BY 1, 2;
INSERT INTO tally SELECT run_id, 'finding', count(*) FROM finding GROUP BY 1, 2;
INSERT INTO tally SELECT run_id, 'notice', count(*) FROM notice GROUP BY 1, 2;
INSERT INTO tally SELECT run_id, 'array/' || key, count(*) FROM array GROUP BY 1, 2;
INSERT INTO tally SELECT run_id, 'event/' || kind, count(*) FROM event GROUP BY 1, 2;
INSERT INTO tally SELECT run_id, 'series/' || axis || '/' || key, count(*) FROM series GROUP BY 1, 2;

CREATE TRIGGER process_added AFTER INSERT ON process BEGIN
    INSERT INTO tally VALUES (new.run_id, 'process', 1)
        ON CONFLICT DO UPDATE SET rows = rows + 1;
END;
CREATE TRIGGER process_gone AFTER DELETE ON process BEGIN
    UPDATE tally SET rows = rows - 1
        WHERE run_id = old.run_id AND what = 'process';
END;
CREATE TRIGGER alert_added AFTER INSERT ON alert BEGIN
    INSERT INTO tally VALUES (new.run_id, 'alert', 1)
        ON CONFLICT DO UPDATE SET rows = rows + 1;
END;
CREATE TRIGGER alert_gone AFTER DELETE ON alert BEGIN
    UPDATE tally SET rows = rows - 1
        WHERE run_id = old.run_id AND what = 'alert';
END;
CREATE TRIGGER finding_added AFTER INSERT ON finding BEGIN
    INSERT INTO tally VALUES (new.run_id, 'finding', 1)
        ON CONFLICT DO UPDATE SET rows = rows + 1;
END;
CREATE TRIGGER finding_gone AFTER DELETE ON finding BEGIN
    UPDATE tally SET rows = rows - 1
        WHERE run_id = old.run_id AND what = 'finding';
END;
CREATE TRIGGER notice_added AFTER INSERT ON notice BEGIN
    INSERT INTO tally VALUES (new.run_id, 'notice', 1)
        ON CONFLICT DO UPDATE SET rows = rows + 1;
END;
CREATE TRIGGER notice_gone AFTER DELETE ON notice BEGIN
    UPDATE tally SET rows = rows - 1
        WHERE run_id = old.run_id AND what = 'notice';
END;
CREATE TRIGGER array_added AFTER INSERT ON array BEGIN
    INSERT INTO tally VALUES (new.run_id, 'array/' || new.key, 1)
        ON CONFLICT DO UPDATE SET rows = rows + 1;
END;
CREATE TRIGGER array_gone AFTER DELETE ON array BEGIN
    UPDATE tally SET rows = rows - 1
        WHERE run_id = old.run_id AND what = 'array/' || old.key;
END;
CREATE TRIGGER event_added AFTER INSERT ON event BEGIN
    INSERT INTO tally VALUES (new.run_id, 'event/' || new.kind, 1)
        ON CONFLICT DO UPDATE SET rows = rows + 1;
END;
CREATE TRIGGER event_gone AFTER DELETE ON event BEGIN
    UPDATE tally SET rows = rows - 1
        WHERE run_id = old.run_id AND what = 'event/' || old.kind;
END;
CREATE TRIGGER series_added AFTER INSERT ON series BEGIN
    INSERT INTO tally VALUES (new.run_id, 'series/' || new.axis || '/' || new.key, 1)
        ON CONFLICT DO UPDATE SET rows = rows + 1;
END;
CREATE TRIGGER series_gone AFTER DELETE ON series BEGIN
    UPDATE tally SET rows = rows - 1
        WHERE run_id = old.run_id AND what = 'series/' || old.axis || '/' || old.key;
END;
CREATE TRIGGER any_run_added AFTER INSERT ON run BEGIN
    UPDATE tally SET rows = rows + 1 WHERE run_id = '' AND what = 'run';
END;
CREATE TRIGGER any_run_gone AFTER DELETE ON run BEGIN
    UPDATE tally SET rows = rows - 1 WHERE run_id = '' AND what = 'run';
END;
CREATE TRIGGER any_process_added AFTER INSERT ON process BEGIN
    UPDATE tally SET rows = rows + 1 WHERE run_id = '' AND what = 'process';
END;
CREATE TRIGGER any_process_gone AFTER DELETE ON process BEGIN
    UPDATE tally SET rows = rows - 1 WHERE run_id = '' AND what = 'process';
END;
"""
# The triggers count all inserted and deleted rows: a reader that finds fewer knows that some are missing.

MIGRATIONS = (_FIRST, _NOTICES, _CHECKED)
"""The migration from each version to the next; a released one is never edited."""

VERSION = len(MIGRATIONS)

SET_ASIDE_VERSION = USER_EVENTS_VERSION = CHECKSUMS_VERSION = 3
"""A file of an earlier version that has not been written since lacks these tables and columns."""


DAMAGED_VERSION = "its version is not that of its tables"
RESTORE = "Restore it from a copy, or move it away to begin a new one. See: stepscope doctor"


def migrate(connection: sqlite3.Connection) -> None:
    """Migrates a file to this version, each version in one transaction."""
    for number in range(version_of(connection), VERSION):
        script = MIGRATIONS[number]
        connection.executescript(f"BEGIN IMMEDIATE; {script} PRAGMA user_version = {number + 1}; COMMIT;")


def check_before_writing(connection: sqlite3.Connection, path: Path) -> None:
    """Raises StoreError for a file of a newer stepscope, or of another program."""
    version = version_of(connection)
    _refuse_newer(version, path)
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if version == 0 and tables:
        raise StoreError(f"{path} is a database of another program. Name another folder.")


def check_before_reading(connection: sqlite3.Connection, path: Path) -> None:
    """Raises StoreError for a file of a newer stepscope, NotFound for one without tables of ours."""
    connection.execute("BEGIN")  # one moment for both: a writer may be making the tables
    try:
        version = version_of(connection)
        (is_newer,) = connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'tally'").fetchone()
    finally:
        if connection.in_transaction:  # SQLite ends it when it fails to read
            connection.execute("ROLLBACK")
    _refuse_newer(version, path)
    if is_newer and version < CHECKSUMS_VERSION:
        raise StoreError(f"{path} cannot be read, it seems to be damaged: {DAMAGED_VERSION}. {RESTORE}")
    if version == 0:
        raise NotFound(f"{path} is not a store of stepscope, or one that is only being made.")


def version_of(connection: sqlite3.Connection) -> int:
    """The version of a file's tables; 0 for an empty file."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _refuse_newer(version: int, path: Path) -> None:
    if version > VERSION:
        raise StoreError(
            f"{path} has version {version}, this stepscope knows up to {VERSION}. "
            "Upgrade with: pip install -U stepscope"
        )
