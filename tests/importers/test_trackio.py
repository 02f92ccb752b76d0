"""Databases of trackio, as its library writes them and as they may be forged."""

from __future__ import annotations

import json
import math
import sqlite3
import subprocess
import sys
from datetime import datetime, timezone

import numpy as np
import pytest

from stepscope.errors import SourceError

TRAIN = """
import math, trackio
trackio.init(project="mnist", name="run-1", config={"lr": 0.1, "layers": [1, 2]})
for step in range(50):
    trackio.log({"loss": 1 / (step + 1), "odd": [math.nan, math.inf, -math.inf][step % 3]})
trackio.log({"nested": {"a": 1}}, step=70)
trackio.finish()
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    pytest.importorskip("trackio")
    folder = tmp_path_factory.mktemp("trackio")
    environment = {"TRACKIO_DIR": str(folder), "PATH": "/usr/bin:/bin", "HOME": str(folder)}
    command = [sys.executable, "-c", TRAIN]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder / "mnist.db"


def test_the_metrics_are_the_same_point_for_point(project, imported):
    [run] = imported(project.parent)
    loss = run.series("loss")
    assert loss.values.tolist() == [1 / (step + 1) for step in range(50)]
    assert loss.steps.tolist() == list(range(50))
    odd = np.array([math.nan, math.inf, -math.inf] * 17)[:50]
    assert np.array_equal(run.series("odd").values, odd, equal_nan=True)
    connection = sqlite3.connect(project)
    times = [
        datetime.fromisoformat(row[0])
        for row in connection.execute("SELECT timestamp FROM metrics ORDER BY id")
    ]
    connection.close()
    assert [datetime.fromtimestamp(ns // 1000 / 1e6, timezone.utc) for ns in loss.times_ns.tolist()] == times[
        :50
    ]


@pytest.mark.parametrize("place", ["{}", "sqlite:///{}"])
def test_name_project_and_configuration_are_kept(place, project, imported):
    [run] = imported(place.format(project))
    assert (run.name, run.project) == ("run-1", "mnist")
    assert run.params == {"lr": 0.1, "layers": [1, 2]}
    assert run.series("nested.a").steps.tolist() == [70]


def forged(path, *statements):
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()
    return path


COLUMNS = "id, run_id, run_name, timestamp, step, metrics"


@pytest.mark.parametrize(
    ("statements", "words"),
    [
        (["CREATE TABLE other (x)"], "no table metrics"),
        (
            [
                "CREATE TABLE t (x)",
                f"CREATE VIEW metrics AS SELECT {', '.join('1 AS ' + c for c in COLUMNS.split(', '))}",
            ],
            "no table metrics",
        ),
        (
            [
                f"CREATE TABLE metrics ({COLUMNS})",
                "INSERT INTO metrics VALUES (1, 'a', 'a', '2026-01-01', 0, '[[')",
            ],
            "row 1 of metrics",
        ),
        (
            [
                f"CREATE TABLE metrics ({COLUMNS})",
                "INSERT INTO metrics VALUES (1, 'a', 'a', 'noon', 0, '{}')",
            ],
            "the time 'noon'",
        ),
        (
            [
                f"CREATE TABLE metrics ({COLUMNS})",
                "INSERT INTO metrics VALUES (1, 'a', 'a', '2026-01-01', 'x', '{}')",
            ],
            "the step 'x'",
        ),
        (
            [
                f"CREATE TABLE metrics ({COLUMNS})",
                f"INSERT INTO metrics VALUES (1, 'a', 'a', '2026-01-01', 0, '{'[' * 100_000}')",
            ],
            "row 1 of metrics",
        ),
    ],
    ids=["another database", "a view", "no JSON", "no time", "no step", "deep JSON"],
)
def test_a_forged_database_is_refused(statements, words, tmp_path, imported):
    path = forged(tmp_path / "x.db", *statements)
    before = path.read_bytes()
    with pytest.raises(SourceError, match=words):
        imported(path, "trackio")
    assert path.read_bytes() == before
    assert list(tmp_path.glob("x.db-*")) == []


def test_a_file_that_is_no_database_is_refused(tmp_path, imported):
    path = tmp_path / "x.db"
    path.write_bytes(b"not a database")
    with pytest.raises(SourceError, match="not an SQLite database"):
        imported(path, "trackio")


def test_a_cut_off_database_is_refused(project, tmp_path, imported):
    path = tmp_path / "mnist.db"
    path.write_bytes(project.read_bytes()[: project.stat().st_size // 3])
    with pytest.raises(SourceError, match=r"mnist\.db"):
        imported(path, "trackio")


def test_media_are_left_out_and_named_and_other_runs_come_through(tmp_path, imported):
    rows = {
        ("a", 0): {
            "loss": 1.0,
            "img": {"_type": "trackio.image", "file_path": "0/x.png", "caption": None},
            "table": {"_type": "trackio.table", "_value": [{"x": 1}]},
            "val": {"note": {"_type": "trackio.markdown", "_value": "# hi"}},
        },
        ("a", 1): {"loss": 0.5, "img": {"_type": "trackio.image"}},
        ("b", 0): {"loss": 3.0},
    }
    inserts = [
        f"INSERT INTO metrics VALUES ({place}, '{run}', '{run}', '2026-01-01', {step}, '{values}')"
        for place, ((run, step), values) in enumerate((at, json.dumps(row)) for at, row in rows.items())
    ]
    path = forged(tmp_path / "x.db", f"CREATE TABLE metrics ({COLUMNS})", *inserts)
    runs = {run.name: run for run in imported(path)}
    assert {name: run.series("loss").values.tolist() for name, run in runs.items()} == {
        "a": [1.0, 0.5],
        "b": [3.0],
    }
    [event] = runs["a"].own_events("imported")
    assert (
        "left out pictures, tables and other media: img (2), table (1), val.note (1)"
        in event.fields["remarks"]
    )


def test_a_damaged_database_beside_others_is_not_passed_over(project, tmp_path, imported):
    (tmp_path / "good.db").write_bytes(project.read_bytes())
    (tmp_path / "bad.db").write_bytes(project.read_bytes()[: project.stat().st_size // 2])
    with pytest.raises(SourceError, match=r"bad\.db is a damaged SQLite database"):
        imported(tmp_path)
