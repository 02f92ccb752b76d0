"""Runs of MLflow: its database, its older folders, and a server that is not there."""

from __future__ import annotations

import math
import socket
import sqlite3
import subprocess
import sys
import time

import numpy as np
import pytest

from stepscope.errors import SourceError
from stepscope.importers.mlflow import TABLES

TRAIN = """
import math, sys
from mlflow import MlflowClient
from mlflow.entities import Metric

client = MlflowClient(sys.argv[1])
experiment = client.create_experiment("größe")
for status in ("FINISHED", "FAILED", "KILLED"):
    run = client.create_run(experiment, run_name=status.lower())
    metrics = [Metric("train/loss", 1 / (step + 1), 1_700_000_000_000 + step, step) for step in range(100)]
    odd = enumerate((math.nan, -1.5, -0.5))
    metrics += [Metric("odd", value, 1_700_000_000_123, step) for step, value in odd]
    client.log_batch(run.info.run_id, metrics=metrics)
    client.log_param(run.info.run_id, "lr", "0.1")
    client.log_param(run.info.run_id, "name", "01")
    client.set_terminated(run.info.run_id, status)
client.delete_run(client.create_run(experiment, run_name="deleted").info.run_id)
"""


@pytest.fixture(scope="module")
def tracking(tmp_path_factory):
    pytest.importorskip("mlflow")
    folder = tmp_path_factory.mktemp("mlflow")
    environment = {"MLFLOW_ALLOW_FILE_STORE": "true", "PATH": "/usr/bin:/bin", "HOME": str(folder)}
    for address in (f"sqlite:///{folder}/mlflow.db", f"file://{folder}/mlruns"):
        command = [sys.executable, "-c", TRAIN, address]
        done = subprocess.run(
            command, env=environment, cwd=folder, capture_output=True, text=True, check=False, timeout=300
        )
        assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("place", ["{}/mlflow.db", "sqlite:///{}/mlflow.db", "{}/mlruns", "file://{}/mlruns"])
def test_metrics_parameters_and_status_are_the_same(place, tracking, imported):
    runs = {run.name: run for run in imported(place.format(tracking))}
    assert {name: run.status for name, run in runs.items()} == {
        "finished": "finished",
        "failed": "failed",
        "killed": "crashed",
    }
    for run in runs.values():
        assert run.project == "größe"
        loss = run.series("train/loss")
        assert loss.values.tolist() == [1 / (step + 1) for step in range(100)]
        assert loss.steps.tolist() == list(range(100))
        assert loss.times_ns.tolist() == [(1_700_000_000_000 + step) * 10**6 for step in range(100)]
        assert np.array_equal(run.series("odd").values, [math.nan, -1.5, -0.5], equal_nan=True)
        assert run.params == {"lr": 0.1, "name": "01"}


def test_a_database_of_mlflow_is_read_without_mlflow(tmp_path, imported):
    path = tmp_path / "mlflow.db"
    connection = sqlite3.connect(path)
    for table, columns in TABLES.items():
        connection.execute(f"CREATE TABLE {table} ({', '.join(columns)})")
    connection.execute("INSERT INTO experiments VALUES (1, 'mnist')")
    connection.execute("INSERT INTO runs VALUES ('abc', 'one', 'RUNNING', 1700000000000, NULL, 'active', 1)")
    rows = [("loss", 0.5, 1_700_000_000_000, "abc", 0, 0), ("loss", 0.0, 1_700_000_001_000, "abc", 7, 1)]
    connection.executemany("INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?)", rows)
    connection.execute("INSERT INTO params VALUES ('lr', '0.1', 'abc')")
    connection.commit()
    connection.close()
    [run] = imported(path)
    assert (run.name, run.project, run.status) == ("one", "mnist", "crashed")
    assert "RUNNING" in run.reason
    [event] = run.own_events("imported")
    assert "the training is running" in event.fields["remarks"][0]
    assert np.array_equal(run.series("loss").values, [0.5, math.nan], equal_nan=True)
    assert run.series("loss").steps.tolist() == [0, 7]
    assert run.params == {"lr": 0.1}


@pytest.mark.slow
def test_a_server_that_does_not_answer_is_an_error(imported, monkeypatch):
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(SourceError, match=r"http://127\.0\.0\.1:1 cannot be read"):
        imported("http://127.0.0.1:1")


@pytest.mark.slow
def test_a_server_that_accepts_and_never_answers_is_an_error_after_a_while(imported, monkeypatch):
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "")  # restored afterwards
    monkeypatch.delenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        begun = time.monotonic()
        with pytest.raises(SourceError, match=f"{address} has not answered within 1 s"):
            imported(address)
    assert time.monotonic() - begun < 20


def test_a_cut_off_metric_is_mentioned(tmp_path, imported):
    run = tmp_path / "mlruns" / "0" / "abc"
    (run / "metrics").mkdir(parents=True)
    (run / "meta.yaml").write_text("run_id: abc\nstart_time: 1700000000000\nstatus: 3\n")
    (run / "metrics" / "loss").write_text("1700000000000 0.5 0\n17000")
    [imported_run] = imported(tmp_path / "mlruns")
    [event] = imported_run.own_events("imported")
    assert "the last line of the metric 'loss' is cut off" in event.fields["remarks"][0]


def test_a_value_that_is_no_number_names_the_file_and_the_line(tmp_path, imported):
    run = tmp_path / "mlruns" / "0" / "abc"
    (run / "metrics").mkdir(parents=True)
    (run / "meta.yaml").write_text("run_id: abc\nstart_time: 1700000000000\nstatus: 3\n")
    (run / "metrics" / "loss").write_text("1700000000000 0.5 0\n1700000000000 half 1\n")
    with pytest.raises(SourceError, match=r"loss is damaged at line 2: .*'half'"):
        imported(tmp_path / "mlruns")


@pytest.mark.parametrize("text", ["- a\n- b\n", "a: [\n", "!!python/object/apply:os.system ['true']\n", "\0"])
def test_a_description_that_is_not_plain_yaml_is_refused(text, tmp_path, imported):
    run = tmp_path / "0" / "abc"
    (run / "metrics").mkdir(parents=True)
    (run / "meta.yaml").write_text(text)
    with pytest.raises(SourceError, match=r"meta\.yaml is damaged"):
        imported(tmp_path, "mlflow")


def test_parameters_that_are_cut_are_named(tmp_path, imported):
    run = tmp_path / "mlruns" / "0" / "abc"
    for folder in ("metrics", "params"):
        (run / folder).mkdir(parents=True)
    (run / "meta.yaml").write_text("run_id: abc\nstart_time: 1700000000000\nstatus: 3\n")
    (run / "params" / "prompt").write_text("x" * 5000)
    (run / "params" / "lr").write_text("0.1")
    [imported_run] = imported(tmp_path / "mlruns")
    assert imported_run.params["lr"] == 0.1
    [event] = imported_run.own_events("imported")
    assert event.fields["remarks"] == [
        "only the first 1,000 characters of parameters were kept: prompt (5,000)"
    ]
