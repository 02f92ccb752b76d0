"""`RealTimeMetricsCollector` and `MetricsDatabase`: names people know, over our own recorder and store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import stepscope
from stepscope.errors import ConfigError, NotFound
from stepscope.facade.collector import RealTimeMetricsCollector
from stepscope.facade.metrics_database import MetricsDatabase
from stepscope.schema.run import Process
from stepscope.schema.series import Source
from stepscope.store.place import database
from stepscope.store.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from stepscope.reading import Run


def test_what_is_collected_can_be_read_when_stop_returns(folder: Path, read: Callable[[str], Run]) -> None:
    collector = RealTimeMetricsCollector(buffer_size=1000, run="collected", directory=folder)
    collector.start()
    for step in range(50):
        collector.collect({"loss": 1 / (step + 1)}, step=step)
    collector.collect({"loss": 0.0})
    collector.stop()
    assert read("collected").series("loss").steps.tolist() == list(range(51))
    assert collector.monitor.run_id == read("collected").id


def test_a_collector_is_a_context_manager_and_records_how_it_was_left(
    folder: Path, read: Callable[[str], Run]
) -> None:
    with (
        pytest.raises(ZeroDivisionError),
        RealTimeMetricsCollector(run="left", directory=folder) as collector,
    ):
        collector.collect({"loss": 1 / 0})
    assert (read("left").status, read("left").reason) == ("failed", "ZeroDivisionError: division by zero")


def test_buffer_and_intervals_become_settings() -> None:
    settings = RealTimeMetricsCollector(100_000, flush_interval=2.0, sample_interval=0.5).monitor.settings
    assert settings.recorder.segment_bytes >= 100_000 * 100
    assert settings.agent.interval_s == 2.0
    assert settings.sampler("gpu").interval_s == 0.5


def test_a_small_buffer_loses_nothing(folder: Path, read: Callable[[str], Run]) -> None:
    with RealTimeMetricsCollector(buffer_size=1, run="small", directory=folder) as collector:
        for step in range(5000):
            collector.collect({"loss": step, "other": step}, step)
    assert len(read("small").series("loss")) == 5000


def test_an_interval_out_of_bounds_is_named_as_it_was_written() -> None:
    with pytest.raises(ConfigError, match="flush_interval is -1"):
        RealTimeMetricsCollector(flush_interval=-1)


def test_training_metrics_are_a_row_for_each_step(folder: Path) -> None:
    with stepscope.TrainingMonitor(run="trained", project="p", directory=folder) as monitor:
        for step in range(3):
            with monitor.phase("forward"):
                pass
            monitor.record_metrics(step, loss=1.0 - step, learning_rate=0.1, batch_size=32)
    with MetricsDatabase(folder) as metrics:
        rows = metrics.get_training_metrics("trained")
        (listed,) = metrics.list_runs()
        assert metrics.get_system_metrics("trained") == metrics.get_alerts("trained") == []
    assert [row["step"] for row in rows] == [0, 1, 2]
    assert [row["loss"] for row in rows] == [1.0, 0.0, -1.0]
    assert rows[0].keys() == {
        *("timestamp", "step", "segment", "rank", "host"),
        *("loss", "epoch", "learning_rate", "batch_size", "phase/forward_seconds", "step_seconds"),
    }
    assert rows[0]["timestamp"] <= rows[2]["timestamp"]
    assert (listed["name"], listed["project"], listed["status"]) == ("trained", "p", "finished")
    assert listed["started"] < listed["ended"]


def test_the_steps_of_two_starts_are_rows_of_their_own(folder: Path) -> None:
    for _ in range(2):
        with stepscope.TrainingMonitor(run="twice", directory=folder, resume=True) as monitor:
            monitor.log({"loss": 1.0}, step=7)
    with MetricsDatabase(folder) as metrics:
        first, second = metrics.get_training_metrics("twice")
    assert first["segment"] != second["segment"]
    assert first["step"] == second["step"] == 7


def test_readings_of_the_machine_are_system_metrics(folder: Path) -> None:
    store = SqliteStore(database(folder))
    seconds = np.array([1, 2], np.int64)
    with store.transaction():
        store.put_process(Process("r-1", "r", "default", "s1", 0, "host", 1, "rank", 1))
        for device, keys in (("gpu0", ["power", "heat"]), ("", ["load"])):
            source = Source("r-1", "s1", 0, "host", device, axis="seconds")
            values = np.ones((2, len(keys)))
            store.append(source, keys, seconds, seconds * 10**9, values)
        store.append(Source("r-1", "s1", 0, "host"), ["loss"], seconds, seconds * 10**9, np.ones((2, 1)))
    store.close()
    with MetricsDatabase(folder) as metrics:
        rows = metrics.get_system_metrics("r")
        assert [row["step"] for row in metrics.get_training_metrics("r")] == [1, 2]
    assert [row["timestamp"] for row in rows] == [1.0, 2.0, 1.0, 2.0]
    assert {
        row["device"]: row.keys() - {"timestamp", "segment", "rank", "host", "device"} for row in rows
    } == {
        "gpu0": {"power", "heat"},
        "": {"load"},
    }


def test_without_a_path_the_usual_folder_is_read(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("STEPSCOPE_DIR", str(folder))
    with RealTimeMetricsCollector(run="usual") as collector:
        collector.collect({"loss": 1.0})
    with MetricsDatabase() as metrics:
        assert [run["name"] for run in metrics.list_runs()] == ["usual"]
        with pytest.raises(NotFound, match="unusual"):
            metrics.get_training_metrics("unusual")
