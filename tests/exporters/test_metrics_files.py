"""The two kinds of JSON lines have the names and fields people know, and are begun anew when full."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import stepscope
from stepscope.exporters.base import Table
from stepscope.exporters.metrics_files import MetricsFiles
from stepscope.schema.sample import DeviceFacts
from stepscope.schema.series import Source

NOON_S = 1_753_878_896.789  # 2025-07-30 12:34:56.789 UTC
NOON_NS = 1_753_878_896_789_000_000
MIB = 1024 * 1024

GPU_FIELDS = [
    "timestamp",
    "gpu_index",
    "utilization_percent",
    "memory_used_mb",
    "memory_total_mb",
    "memory_percent",
    "temperature_celsius",
    "power_draw_watts",
    "fan_speed_percent",
]
TRAINING_FIELDS = [
    "timestamp",
    "step",
    "epoch",
    "loss",
    "learning_rate",
    "gradient_norm",
    "throughput_samples_per_sec",
    "memory_allocated_mb",
    "memory_reserved_mb",
]


def table(source: Source, rows: dict[str, list[float]], step: int = 0) -> Table:
    values = np.array(list(rows.values()), float).T
    steps = np.arange(step, step + len(values))
    return Table(source, list(rows), steps, NOON_NS + steps * 10**9, values)


def gpu(figures: dict[str, list[float]], device: str = "GPU-b") -> Table:
    return table(Source("run", "s1", None, "node1", device, "seconds"), figures)


def logged(metrics: dict[str, list[float]], rank: int = 0, step: int = 1000, run: str = "run") -> Table:
    return table(Source(run, "s1", rank, "node1"), metrics, step)


@pytest.fixture
def files(tmp_path: Path) -> MetricsFiles:
    made = MetricsFiles(str(tmp_path / "logs"), _now=lambda: NOON_S)
    made.describe(DeviceFacts("GPU-b", {"index": 1, "name": "Scripted"}))
    return made


def lines(tmp_path: Path, name: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in (tmp_path / "logs" / name).read_text().splitlines()]


def test_a_look_at_a_gpu_is_a_line_with_the_known_fields(files: MetricsFiles, tmp_path: Path) -> None:
    figures = {
        "gpu/utilization_ratio": [0.95],
        "gpu/memory_used_bytes": [22500.0 * MIB],
        "gpu/memory_total_bytes": [24576.0 * MIB],
        "gpu/memory_used_ratio": [0.9155],
        "gpu/temperature_celsius": [75.0],
        "gpu/power_watts": [320.0],
        "gpu/fan_ratio": [0.65],
        "gpu/sm_clock_hertz": [1.98e9],
    }
    files.take(gpu(figures))
    (line,) = lines(tmp_path, "gpu_metrics_20250730_123456.jsonl")
    assert list(line) == GPU_FIELDS
    assert list(line.values()) == ["2025-07-30T12:34:56.789Z", 1, 95.0, 22500.0, 24576.0, 91.55, 75, 320, 65]


def test_a_figure_a_gpu_does_not_give_is_null_and_not_zero(files: MetricsFiles, tmp_path: Path) -> None:
    files.take(gpu({"gpu/power_watts": [100.0]}))
    (line,) = lines(tmp_path, "gpu_metrics_20250730_123456.jsonl")
    assert list(line) == GPU_FIELDS
    assert (line["power_draw_watts"], line["fan_speed_percent"]) == (100.0, None)


def test_a_step_is_a_line_with_the_known_fields_under_any_of_their_names(
    files: MetricsFiles, tmp_path: Path
) -> None:
    files.take(logged({"loss": [0.1234], "epoch": [2.5], "lr": [1e-4], "grad_norm": [1.234]}))
    files.take(logged({"loss": [float("nan")], "throughput": [32.5]}, step=1001))
    first, second = lines(tmp_path, "training_metrics_20250730_123456.jsonl")
    assert list(first) == list(second) == TRAINING_FIELDS
    assert list(first.values())[1:6] == [1000, 2.5, 0.1234, 1e-4, 1.234]
    assert (second["loss"], second["throughput_samples_per_sec"]) == (None, 32.5)


def test_other_ranks_workers_and_other_metrics_write_no_lines(files: MetricsFiles, tmp_path: Path) -> None:
    files.take(logged({"loss": [1.0]}))
    files.take(logged({"loss": [2.0]}, rank=1))
    files.take(logged({"accuracy": [0.5]}))
    files.take(gpu({"gpu/power_watts": [1.0]}, device="cpu-0"))
    assert [line["loss"] for line in lines(tmp_path, "training_metrics_20250730_123456.jsonl")] == [1.0]
    assert len(list((tmp_path / "logs").iterdir())) == 1


def test_two_runs_of_the_same_second_have_files_of_their_own(files: MetricsFiles, tmp_path: Path) -> None:
    files.take(logged({"loss": [1.0]}))
    files.take(logged({"loss": [2.0]}, run="other"))
    found = sorted(path.name for path in (tmp_path / "logs").iterdir())
    assert found == ["training_metrics_20250730_123456.jsonl", "training_metrics_20250730_123457.jsonl"]


def test_a_full_file_is_followed_by_another_and_the_oldest_go(tmp_path: Path) -> None:
    moment = NOON_S
    files = MetricsFiles(str(tmp_path / "logs"), max_bytes=1000, keep=2, _now=lambda: moment)
    for step in range(40):
        moment += 1
        files.take(logged({"loss": [float(step)]}, step=step))
    found = sorted(path.name for path in (tmp_path / "logs").iterdir())
    assert len(found) == 2
    assert all((tmp_path / "logs" / name).stat().st_size <= 1000 for name in found)
    assert lines(tmp_path, found[-1])[-1]["step"] == 39


def test_a_run_writes_them_when_the_settings_ask_for_it(folder: Path, tmp_path: Path) -> None:
    config = {"exporters": {"metrics_files": {"directory": str(tmp_path / "logs")}}}
    with stepscope.TrainingMonitor(config, run="a", directory=folder) as monitor:
        for step in range(5):
            monitor.log_training_step(loss=1.0 / (step + 1), learning_rate=0.1)
    (path,) = (tmp_path / "logs").glob("training_metrics_*.jsonl")
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [0, 1, 2, 3, 4]
