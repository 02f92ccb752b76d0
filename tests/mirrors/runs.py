"""Runs for the tests of mirrors, and what TensorBoard, MLflow and W&B have of them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.peers.wandb import _messages

import stepscope
from stepscope.exporters.base import RecordedArray, Table
from stepscope.model_stats.histograms import BUCKETS
from stepscope.reading import Run
from stepscope.schema.run import Process
from stepscope.schema.series import Source

os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"

START_NS = 1_753_878_896_000_000_000
PARAMS = {"lr": 0.1, "optimizer": {"name": "sgd", "betas": [0.9, 0.99]}, "amp": True, "odd@key": "x" * 7000}
ODD_VALUES = [float("nan"), float("inf"), float("-inf"), 1e300, 1e-300, -0.0]
ODD_KEYS = {
    "acc@top 5%": 1.0,
    "acc_top 5_": 2.0,
    "train/../loss": 3.0,
    "": 4.0,
    "損失/全体": 5.0,
    "k" * 300: 6.0,
}


def record(folder: Path) -> None:
    """Records a run that fails and is resumed from an earlier step, with odd values and odd keys."""
    try:
        with stepscope.TrainingMonitor(
            run="tré in/a", project="lab", directory=folder, params=PARAMS
        ) as monitor:
            for step in range(40):
                monitor.log({"loss": 1 / (step + 1), "epoch": step // 10}, step=step)
                if step % 10 == 0:
                    monitor.log({"val/loss": 2 / (step + 1)}, step=step)
            for step, value in enumerate(ODD_VALUES):
                monitor.log({"odd": value}, step=step)
            monitor.log(ODD_KEYS, step=39)
            writer = monitor.open_recording().writer
            for step, (key, values) in enumerate(ARRAYS.items()):
                fields = {"key": key, "step": step, "dtype": "<f8", "shape": values.shape}
                writer.append_array(fields, values.tobytes())
            raise RuntimeError("out of luck")  # noqa: TRY301 - the training fails
    except RuntimeError:
        pass
    with stepscope.TrainingMonitor(run="tré in/a", project="lab", directory=folder, resume=True) as monitor:
        for step in range(30, 50):
            monitor.log({"loss": 1 / (step + 1)}, step=step)


def histogram(low: float, high: float) -> np.ndarray:
    """A recorded histogram with 1, 2, 3, ... elements in its buckets."""
    counts = np.arange(1.0, BUCKETS + 1)
    return np.concatenate([counts, [low, high, 0.5, 0.25, 0.0, 0.0, counts.sum()]])


ARRAYS = {
    "histogram/gradient/0": histogram(-1.0, 3.0),
    "weights": np.array([1.0, 2.0, 2.0, float("nan")]),
}


def logged(run: Run, segment: str, key: str) -> tuple[list[int], list[float]]:
    """Steps and values of a logged key."""
    points = run.series(key, segment=segment)
    return points.steps.tolist(), points.values.tolist()


def same(one: list[float], other: list[float]) -> bool:
    """Whether values are equal; NaN equals NaN."""
    return np.array_equal(np.array(one, float), np.array(other, float), equal_nan=True)


def process(status: str = "running", **fields: Any) -> Process:
    """A rank of a run."""
    ended = None if status == "running" else START_NS + 60 * 10**9
    values = {"run_id": "run-1", "name": "run", "project": "lab", "segment": "s1", "rank": 0, **fields}
    return Process(
        **values, host="node1", pid=7, role="rank", started_ns=START_NS, status=status, ended_ns=ended
    )


def rows(metrics: dict[str, list[float]], first: int = 0, **labels: Any) -> Table:
    """Rows of a rank, one each second."""
    source = Source(**{"run_id": "run-1", "segment": "s1", "rank": 0, "host": "node1", **labels})
    values = np.array(list(metrics.values()), float).T
    steps = np.arange(first, first + len(values))
    times_ns = START_NS + steps * 10**9
    return Table(source, list(metrics), steps if source.axis == "step" else steps * 0, times_ns, values)


def array(key: str, values: np.ndarray, **labels: Any) -> RecordedArray:
    """An array of a rank at step 5."""
    labels = {"run_id": "run-1", "segment": "s1", "rank": 0, **labels}
    return RecordedArray(**labels, key=key, step=5, time_ns=START_NS, values=values)


class WandbRun:
    """What an offline run of W&B has uploaded when it is synchronised."""

    def __init__(self, folder: Path) -> None:
        from wandb.proto import wandb_internal_pb2

        self.rows: list[dict[str, Any]] = []
        self.config: dict[str, Any] = {}
        self.summary: dict[str, Any] = {}
        self.step_metrics: dict[str, str] = {}
        self.exit_code: int | None = None
        (file,) = folder.glob("*.wandb")
        for message in _messages(file.read_bytes()):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(message)
            self._take(record)

    def _take(self, record: Any) -> None:
        kind = record.WhichOneof("record_type")
        if kind == "run":
            self.id, self.name, self.project = record.run.run_id, record.run.display_name, record.run.project
            self.group = record.run.run_group
        if kind in ("run", "config"):
            config = record.run.config if kind == "run" else record.config
            self.config |= {item.key: json.loads(item.value_json) for item in config.update}
        elif kind == "summary":
            updates = record.summary.update
            self.summary |= {
                "/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in updates
            }
        elif kind == "metric":
            name = record.metric.glob_name or record.metric.name
            self.step_metrics[name] = record.metric.step_metric
        elif kind == "history":
            row: dict[str, Any] = {}
            for item in record.history.item:
                *parents, name = list(item.nested_key) or [item.key]
                place = row
                for parent in parents:
                    place = place.setdefault(parent, {})
                place[name] = json.loads(item.value_json)
            self.rows.append(row)
        elif kind == "exit":
            self.exit_code = record.exit.exit_code

    def series(self, key: str) -> tuple[list[int], list[float]]:
        """Steps and values of a key."""
        points = [(row["stepscope/step"], float(row[key])) for row in self.rows if key in row]
        return [step for step, _ in points], [value for _, value in points]


def wandb_runs(folder: Path) -> Iterator[WandbRun]:
    """The offline runs below a folder."""
    for place in sorted((folder / "wandb").glob("offline-run-*")):
        yield WandbRun(place)
