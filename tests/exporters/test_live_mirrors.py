"""A live run is copied while it trains; the copy made afterwards is the same, and trouble harms nothing."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stepscope
from stepscope.agent.process.election import agent_pid
from stepscope.exporters.base import Feed
from stepscope.exporters.mlflow import Mlflow
from stepscope.exporters.tensorboard import TensorBoard
from stepscope.exporters.wandb import Wandb
from stepscope.reading import Run
from stepscope.views.export.replay import replay
from stepscope.views.run_exporters import exporters_of
from tests.exporters.test_tensorboard import read
from tests.mirrors.runs import wandb_runs

DOCS = Path(__file__).parents[2] / "docs"

pytestmark = [
    pytest.mark.slow,  # a training, an agent, and the libraries of all three
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of these libraries
]

TRAINING = """
import numpy, stepscope
with stepscope.TrainingMonitor(run="live", params={"lr": 0.5, "optimizer": {"name": "sgd"}}) as monitor:
    writer = monitor.open_recording().writer
    input()
    for step in range(300):
        monitor.log_training_step(loss=1 / (step + 1), custom_metrics={"odd@key": float(step)})
        if step % 100 == 0:
            fields = {"key": "weights", "step": step, "dtype": "<f8", "shape": (20,)}
            writer.append_array(fields, numpy.arange(20.0).tobytes())
"""


@pytest.fixture
def train(start, folder: Path, until, tmp_path: Path) -> Callable[..., Run]:
    """Trains with live exporters once they are ready, and waits until the agent has completed them."""

    def run(is_ready: Callable[[], object], **exporters: dict[str, object]) -> Run:
        environment = {"STEPSCOPE_EXPORTERS": json.dumps(exporters), "STEPSCOPE_AGENT__LINGER_S": "0"}
        process = start(TRAINING, environment=environment, cwd=tmp_path, stdin=-1)
        until(is_ready)
        out, err = process.communicate("go\n", timeout=400)
        assert (process.returncode, out, err) == (0, "", "")
        until(lambda: agent_pid(folder) is None)
        return stepscope.open_store(folder).run("live")

    return run


def copy(run: Run, feed: Feed) -> None:
    replay(run, feed)
    feed.close()


def events_in(folder: Path) -> dict[str, Any]:
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    (place,) = folder.glob("*/*")
    events = read(place)
    tags = events.Tags()
    events_by_tag = {tag: [repr(event) for event in events.Scalars(tag)] for tag in tags["scalars"]}
    events_by_tag |= {tag: [repr(event) for event in events.Histograms(tag)] for tag in tags["histograms"]}
    # The agent notes at its end how the exporters were doing; they have ended by then.
    events_by_tag = {
        tag: values for tag, values in events_by_tag.items() if not tag.startswith("system/stepscope/")
    }
    params = events.PluginTagToContent("hparams")
    return {**events_by_tag, **{tag: HParamsPluginData.FromString(params[tag]) for tag in params}}


def test_event_files_are_complete_when_the_training_ends(train: Callable[..., Run], tmp_path: Path) -> None:
    run = train(lambda: True, tensorboard={"directory": "live"})
    live = events_in(tmp_path / "live")
    copy(run, TensorBoard("copied", _directory=tmp_path))
    copied = events_in(tmp_path / "copied")
    assert len(live["loss"]) == 300
    assert len(live["weights"]) == 3
    assert live == copied


def test_live_and_afterwards_mlflow_and_w_and_b_have_the_same(
    train: Callable[..., Run], tmp_path: Path
) -> None:
    from mlflow import MlflowClient

    rate = {"points_per_second": 1e9}
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    run = train(
        lambda: has_runs(tmp_path / "mlflow.db") and list((tmp_path / "live").rglob("*.wandb")),
        mlflow={"tracking_uri": "sqlite:///mlflow.db", "experiment": "live", **rate},
        wandb={"mode": "offline", "project": "live", "directory": "live", **rate},
    )
    copy(run, Mlflow(uri, "copied", _existing="refuse", **rate))
    copy(run, Wandb("live", mode="offline", directory=str(tmp_path / "copied"), _existing="refuse", **rate))

    client = MlflowClient(uri)
    histories = []
    for experiment in ("live", "copied"):
        (copied_run,) = client.search_runs([client.get_experiment_by_name(experiment).experiment_id])
        metrics = {
            key: sorted(
                (point.timestamp, point.step, point.value)
                for point in client.get_metric_history(copied_run.info.run_id, key)
            )
            for key in copied_run.data.metrics
        }
        histories.append((metrics, copied_run.data.params, copied_run.data.tags, copied_run.info.status))
    assert len(histories[0][0]["loss"]) == 300
    assert histories[0] == histories[1]

    (live,), (copied,) = wandb_runs(tmp_path / "live"), wandb_runs(tmp_path / "copied")
    assert live.config == copied.config
    assert live.exit_code == copied.exit_code == 0
    logged = [
        sorted(json.dumps(row, sort_keys=True) for row in map(without_own_fields, of.rows) if row)
        for of in (live, copied)
    ]
    assert len(live.series("stepscope/loss")[0]) == 300
    assert logged[0] == logged[1]


def steps_in(tool: str, folder: Path) -> list[int]:
    """The steps of the key `train/loss` in a tool, by its own reader."""
    if tool == "tensorboard":
        (place,) = (folder / "tensorboard").glob("*/*")
        return [event.step for event in read(place).Scalars("train/loss")]
    if tool == "wandb":
        (copied,) = wandb_runs(folder)
        return copied.series("stepscope/train/loss")[0]
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    (run,) = client.search_runs([client.get_experiment_by_name("mnist").experiment_id])
    return [point.step for point in client.get_metric_history(run.info.run_id, "train/loss")]


@pytest.mark.parametrize("tool", ["mlflow", "wandb", "tensorboard"])
def test_the_training_of_the_page_arrives_whole(
    tool: str, tmp_path: Path, until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPSCOPE_AGENT__LINGER_S", "20")  # for a tool that takes long to load
    page = (DOCS / f"{tool}.md").read_text()
    settings, training = (re.search(rf"```{kind}\n(.*?)```", page, re.DOTALL) for kind in ("yaml", "python"))
    (tmp_path / "stepscope.yaml").write_text(settings[1])
    (tmp_path / "train.py").write_text(training[1])
    subprocess.run([sys.executable, "train.py"], check=True, env=os.environ)
    until(lambda: agent_pid(tmp_path / ".stepscope") is None)
    assert steps_in(tool, tmp_path) == list(range(100))


def has_runs(database: Path) -> bool:
    """Whether MLflow has made its tables and a run."""
    if not database.exists():
        return False
    with contextlib.closing(sqlite3.connect(database)) as connection:
        try:
            return connection.execute("SELECT COUNT(*) FROM runs").fetchone()[0] > 0
        except sqlite3.Error:
            return False


def without_own_fields(row: dict[str, object]) -> dict[str, object]:
    """What was logged for a step; readings of the last second may come after the end of the run."""
    if "stepscope/step" not in row:
        return {}
    return {key: value for key, value in row.items() if key not in ("_step", "_runtime")}


def test_programs_that_are_away_harm_neither_the_training_nor_the_store_nor_other_exporters(
    train: Callable[..., Run], tmp_path: Path, folder: Path
) -> None:
    failures = [f"The exporter {name} failed, and is tried again: " for name in ("mlflow", "wandb")]
    failures.append("The exporter tensorboard failed, and is paused for a minute: ")
    (tmp_path / "in the way").write_text("")
    with socket.create_server(("127.0.0.1", 0)) as gone:
        uri = f"http://127.0.0.1:{gone.getsockname()[1]}"
    log = folder / "agent.log"
    run = train(
        lambda: log.exists() and all(message in log.read_text() for message in failures),
        mlflow={"tracking_uri": uri},
        wandb={"mode": "offline", "directory": "/proc/nope"},
        metrics_files={"directory": "files"},
        tensorboard={"directory": "in the way/below"},
    )
    assert len(run.series("loss")) == 300
    assert run.status == "finished"
    (file,) = (tmp_path / "files").rglob("training_metrics_*.jsonl")
    assert len(file.read_text().splitlines()) == 300
    errors = {exporter.name: exporter.error for exporter in exporters_of(run) if exporter.is_failing}
    assert sorted(errors) == ["mlflow", "tensorboard", "wandb"]
    assert errors["wandb"] == (
        "The folder /proc/nope for W&B cannot be written: No such file or directory. Choose another."
    )
    assert errors["tensorboard"].endswith(
        "for TensorBoard cannot be written: Not a directory. Choose another."
    )
