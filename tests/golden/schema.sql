-- store.sqlite
PRAGMA user_version = 3;
CREATE INDEX alert_by_run ON alert (run_id, fired_ns);
CREATE INDEX alert_open ON alert (run_id) WHERE resolved_ns IS NULL;
CREATE INDEX array_by_key ON array (run_id, key, step);
CREATE INDEX chunk_by_series ON chunk (series_id, key_set_id, number);
CREATE INDEX event_by_run ON event (run_id, time_ns);
CREATE INDEX finding_by_run ON finding (run_id, opened_ns);
CREATE UNIQUE INDEX key_set_once ON key_set (run_id, segment, coalesce(rank, -1), host, device, axis, keys);
CREATE INDEX member_by_set ON member (key_set_id);
CREATE INDEX notice_by_run ON notice (run_id, made_ns);
CREATE INDEX rollup_by_node ON rollup (node_id);
CREATE INDEX run_by_name ON run (name);
CREATE UNIQUE INDEX series_once ON series (run_id, key, segment, coalesce(rank, -1), host, device, axis);
CREATE INDEX tail_by_set ON tail (key_set_id);
CREATE TABLE alert (id INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    rule TEXT NOT NULL,
    severity TEXT NOT NULL,
    message TEXT NOT NULL,
    fired_ns INTEGER NOT NULL,
    resolved_ns INTEGER,
    fields TEXT NOT NULL,
    checksum INTEGER);
CREATE TABLE array (id INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    segment TEXT NOT NULL,
    rank INTEGER NOT NULL,
    key TEXT NOT NULL,
    time_ns INTEGER NOT NULL,
    step INTEGER,
    fields TEXT NOT NULL,
    data BLOB NOT NULL,
    checksum INTEGER);
CREATE TABLE block (key_set_id INTEGER NOT NULL REFERENCES key_set (id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    rows INTEGER NOT NULL,
    steps BLOB NOT NULL,
    times BLOB NOT NULL,
    checksum INTEGER,
    UNIQUE (key_set_id, number));
CREATE TABLE chunk (series_id INTEGER NOT NULL REFERENCES series (id) ON DELETE CASCADE,
    key_set_id INTEGER NOT NULL,
    number INTEGER NOT NULL,
    rows INTEGER NOT NULL,
    minimum REAL,
    maximum REAL,
    total REAL,
    first REAL,
    last REAL,
    nonfinite INTEGER NOT NULL,
    data BLOB NOT NULL,
    checksum INTEGER);
CREATE TABLE event (id INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    segment TEXT NOT NULL,
    rank INTEGER,
    kind TEXT NOT NULL,
    time_ns INTEGER NOT NULL,
    step INTEGER,
    fields TEXT NOT NULL,
    by_user INTEGER NOT NULL DEFAULT 0,
    checksum INTEGER);
CREATE TABLE finding (id INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    problem TEXT NOT NULL,
    severity TEXT NOT NULL,
    opened_ns INTEGER NOT NULL,
    closed_ns INTEGER,
    fields TEXT NOT NULL,
    checksum INTEGER);
CREATE TABLE journal (file_id INTEGER PRIMARY KEY,
    offset INTEGER NOT NULL,
    lost INTEGER NOT NULL,
    checksum INTEGER);
CREATE TABLE key_set (id INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    segment TEXT NOT NULL,
    rank INTEGER,
    host TEXT NOT NULL,
    device TEXT NOT NULL,
    axis TEXT NOT NULL,
    keys TEXT NOT NULL,
    blocks INTEGER NOT NULL DEFAULT 0,
    rows INTEGER,
    sealed INTEGER,
    last BLOB,
    checksum INTEGER);
CREATE TABLE member (series_id INTEGER NOT NULL REFERENCES series (id) ON DELETE CASCADE,
    key_set_id INTEGER NOT NULL REFERENCES key_set (id) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    nonfinite INTEGER,
    minimum REAL,
    maximum REAL,
    total REAL,
    checksum INTEGER,
    PRIMARY KEY (series_id, key_set_id, position)) WITHOUT ROWID;
CREATE TABLE node (id INTEGER PRIMARY KEY,
    key_set_id INTEGER NOT NULL REFERENCES key_set (id) ON DELETE CASCADE,
    level INTEGER NOT NULL,
    number INTEGER NOT NULL,
    low INTEGER NOT NULL,
    high INTEGER NOT NULL,
    exponent INTEGER NOT NULL,
    buckets INTEGER NOT NULL,
    starts BLOB NOT NULL,
    counts BLOB NOT NULL,
    times BLOB NOT NULL,
    checksum INTEGER,
    UNIQUE (key_set_id, level, number));
CREATE TABLE notice (id INTEGER PRIMARY KEY,
    notice_id TEXT NOT NULL,
    channel TEXT NOT NULL,
    run_id TEXT NOT NULL,
    made_ns INTEGER NOT NULL,
    due_ns INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    trouble TEXT NOT NULL,
    sent_ns INTEGER,
    given_up_ns INTEGER,
    told TEXT NOT NULL,
    checksum INTEGER,
    UNIQUE (notice_id, channel));
CREATE TABLE process (id INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    segment TEXT NOT NULL,
    rank INTEGER NOT NULL,
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    role TEXT NOT NULL,
    status TEXT NOT NULL,
    reason TEXT NOT NULL,
    exit_code INTEGER,
    started_ns INTEGER NOT NULL,
    ended_ns INTEGER,
    last_ns INTEGER NOT NULL,
    dropped INTEGER NOT NULL,
    lost INTEGER NOT NULL,
    facts TEXT NOT NULL,
    checksum INTEGER,
    UNIQUE (run_id, segment, rank, host, pid, started_ns));
CREATE TABLE rollup (series_id INTEGER NOT NULL REFERENCES series (id) ON DELETE CASCADE,
    node_id INTEGER NOT NULL REFERENCES node (id) ON DELETE CASCADE,
    data BLOB NOT NULL,
    checksum INTEGER,
    UNIQUE (series_id, node_id));
CREATE TABLE run (id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    project TEXT NOT NULL,
    created_ns INTEGER NOT NULL,
    checksum INTEGER);
CREATE TABLE series (id INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    key TEXT NOT NULL,
    segment TEXT NOT NULL,
    rank INTEGER,
    host TEXT NOT NULL,
    device TEXT NOT NULL,
    axis TEXT NOT NULL,
    points INTEGER NOT NULL DEFAULT 0,
    last REAL,
    last_step INTEGER,
    last_ns INTEGER NOT NULL DEFAULT 0,
    key_sets INTEGER,
    checksum INTEGER);
CREATE TABLE set_aside (path TEXT PRIMARY KEY,
    reason TEXT NOT NULL,
    advice TEXT NOT NULL,
    since_ns INTEGER NOT NULL,
    checksum INTEGER NOT NULL);
CREATE TABLE tail (id INTEGER PRIMARY KEY,
    key_set_id INTEGER NOT NULL REFERENCES key_set (id) ON DELETE CASCADE,
    rows INTEGER NOT NULL,
    data BLOB NOT NULL,
    checksum INTEGER);
CREATE TABLE tally (run_id TEXT NOT NULL,
    what TEXT NOT NULL,
    rows INTEGER NOT NULL,
    PRIMARY KEY (run_id, what)) WITHOUT ROWID;
CREATE TRIGGER alert_added AFTER INSERT ON alert BEGIN INSERT INTO tally VALUES (new.run_id, 'alert', 1) ON CONFLICT DO UPDATE SET rows = rows + 1; END;
CREATE TRIGGER alert_gone AFTER DELETE ON alert BEGIN UPDATE tally SET rows = rows - 1 WHERE run_id = old.run_id AND what = 'alert'; END;
CREATE TRIGGER any_process_added AFTER INSERT ON process BEGIN UPDATE tally SET rows = rows + 1 WHERE run_id = '' AND what = 'process'; END;
CREATE TRIGGER any_process_gone AFTER DELETE ON process BEGIN UPDATE tally SET rows = rows - 1 WHERE run_id = '' AND what = 'process'; END;
CREATE TRIGGER any_run_added AFTER INSERT ON run BEGIN UPDATE tally SET rows = rows + 1 WHERE run_id = '' AND what = 'run'; END;
CREATE TRIGGER any_run_gone AFTER DELETE ON run BEGIN UPDATE tally SET rows = rows - 1 WHERE run_id = '' AND what = 'run'; END;
CREATE TRIGGER array_added AFTER INSERT ON array BEGIN INSERT INTO tally VALUES (new.run_id, 'array/' || new.key, 1) ON CONFLICT DO UPDATE SET rows = rows + 1; END;
CREATE TRIGGER array_gone AFTER DELETE ON array BEGIN UPDATE tally SET rows = rows - 1 WHERE run_id = old.run_id AND what = 'array/' || old.key; END;
CREATE TRIGGER event_added AFTER INSERT ON event BEGIN INSERT INTO tally VALUES (new.run_id, 'event/' || new.kind, 1) ON CONFLICT DO UPDATE SET rows = rows + 1; END;
CREATE TRIGGER event_gone AFTER DELETE ON event BEGIN UPDATE tally SET rows = rows - 1 WHERE run_id = old.run_id AND what = 'event/' || old.kind; END;
CREATE TRIGGER finding_added AFTER INSERT ON finding BEGIN INSERT INTO tally VALUES (new.run_id, 'finding', 1) ON CONFLICT DO UPDATE SET rows = rows + 1; END;
CREATE TRIGGER finding_gone AFTER DELETE ON finding BEGIN UPDATE tally SET rows = rows - 1 WHERE run_id = old.run_id AND what = 'finding'; END;
CREATE TRIGGER notice_added AFTER INSERT ON notice BEGIN INSERT INTO tally VALUES (new.run_id, 'notice', 1) ON CONFLICT DO UPDATE SET rows = rows + 1; END;
CREATE TRIGGER notice_gone AFTER DELETE ON notice BEGIN UPDATE tally SET rows = rows - 1 WHERE run_id = old.run_id AND what = 'notice'; END;
CREATE TRIGGER process_added AFTER INSERT ON process BEGIN INSERT INTO tally VALUES (new.run_id, 'process', 1) ON CONFLICT DO UPDATE SET rows = rows + 1; END;
CREATE TRIGGER process_gone AFTER DELETE ON process BEGIN UPDATE tally SET rows = rows - 1 WHERE run_id = old.run_id AND what = 'process'; END;
CREATE TRIGGER series_added AFTER INSERT ON series BEGIN INSERT INTO tally VALUES (new.run_id, 'series/' || new.axis || '/' || new.key, 1) ON CONFLICT DO UPDATE SET rows = rows + 1; END;
CREATE TRIGGER series_gone AFTER DELETE ON series BEGIN UPDATE tally SET rows = rows - 1 WHERE run_id = old.run_id AND what = 'series/' || old.axis || '/' || old.key; END;

-- page.sqlite
PRAGMA user_version = 2;
CREATE INDEX note_by_run ON note (run_id);
CREATE TABLE feedback (project TEXT NOT NULL,
    finding TEXT NOT NULL,
    opinion TEXT NOT NULL,
    run_id TEXT NOT NULL,
    headline TEXT NOT NULL,
    note TEXT NOT NULL,
    made REAL NOT NULL,
    PRIMARY KEY (project, finding));
CREATE TABLE layout (page TEXT PRIMARY KEY,
    document TEXT NOT NULL);
CREATE TABLE mark (run_id TEXT PRIMARY KEY,
    name TEXT,
    tags TEXT NOT NULL DEFAULT '[]',
    archived INTEGER NOT NULL DEFAULT 0,
    colour TEXT,
    muted TEXT NOT NULL DEFAULT '[]');
CREATE TABLE note (id INTEGER PRIMARY KEY AUTOINCREMENT,
    run_id TEXT NOT NULL,
    step INTEGER,
    time REAL,
    text TEXT NOT NULL,
    made REAL NOT NULL);
