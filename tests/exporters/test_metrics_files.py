"""The two kinds of JSON lines have the common names and fields, and are rotated when full."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import stepscope
from stepscope.errors import ConfigError
from stepscope.exporters.base import Table
from stepscope.exporters.metrics_files import WAIT_S, MetricsFiles
from stepscope.schema.keys import STEP_SECONDS
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
    "step_seconds",
    "throughput_steps_per_sec",
]


def table(source: Source, rows: dict[str, list[float]], step: int = 0, later_s: int = 0) -> Table:
    values = np.array(list(rows.values()), float).T
    steps = np.arange(step, step + len(values))
    return Table(source, list(rows), steps, NOON_NS + (later_s + steps) * 10**9, values)


def gpu(figures: dict[str, list[float]], device: str = "GPU-b") -> Table:
    return table(Source("run", "s1", None, "node1", device, "seconds"), figures)


def logged(
    metrics: dict[str, list[float]], rank: int = 0, step: int = 1000, run: str = "run", later_s: int = 0
) -> Table:
    return table(Source(run, "s1", rank, "node1"), metrics, step, later_s)


class Clock:
    """A clock that a test moves forward."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def files(tmp_path: Path, clock: Clock) -> MetricsFiles:
    made = MetricsFiles(str(tmp_path / "logs"), _now=lambda: NOON_S, _clock=clock)
    made.describe(DeviceFacts("GPU-b", {"index": 1, "name": "Scripted"}))
    return made


def lines(tmp_path: Path, name: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in (tmp_path / "logs" / name).read_text().splitlines()]


def test_a_gpu_sample_is_a_line_with_the_known_fields(files: MetricsFiles, tmp_path: Path) -> None:
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


def test_a_missing_gpu_metric_is_null_and_not_zero(files: MetricsFiles, tmp_path: Path) -> None:
    files.take(gpu({"gpu/power_watts": [100.0]}))
    (line,) = lines(tmp_path, "gpu_metrics_20250730_123456.jsonl")
    assert list(line) == GPU_FIELDS
    assert (line["power_draw_watts"], line["fan_speed_percent"]) == (100.0, None)


def test_a_step_is_a_line_with_the_known_fields_under_any_of_their_names(
    files: MetricsFiles, tmp_path: Path
) -> None:
    files.take(logged({"loss": [0.1234], "epoch": [2.5], "lr": [1e-4], "grad_norm": [1.234]}))
    files.take(logged({"loss": [float("nan")], "throughput": [32.5]}, step=1001))
    files.close()
    first, second = lines(tmp_path, "training_metrics_20250730_123456.jsonl")
    assert list(first) == list(second) == TRAINING_FIELDS
    assert list(first.values())[1:6] == [1000, 2.5, 0.1234, 1e-4, 1.234]
    assert (second["loss"], second["throughput_samples_per_sec"]) == (None, 32.5)


def test_other_ranks_workers_and_other_metrics_write_no_lines(files: MetricsFiles, tmp_path: Path) -> None:
    files.take(logged({"loss": [1.0]}))
    files.take(logged({"loss": [2.0]}, rank=1))
    files.take(logged({"accuracy": [0.5]}))
    files.take(gpu({"gpu/power_watts": [1.0]}, device="cpu-0"))
    files.close()
    assert [line["loss"] for line in lines(tmp_path, "training_metrics_20250730_123456.jsonl")] == [1.0]
    assert len(list((tmp_path / "logs").iterdir())) == 1


def test_two_runs_of_the_same_second_have_separate_files(files: MetricsFiles, tmp_path: Path) -> None:
    files.take(logged({"loss": [1.0]}))
    files.take(logged({"loss": [2.0]}, run="other"))
    files.close()
    names = sorted(path.name for path in (tmp_path / "logs").iterdir())
    assert names == ["training_metrics_20250730_123456.jsonl", "training_metrics_20250730_123457.jsonl"]


def test_a_full_file_is_rotated_and_the_oldest_are_deleted(tmp_path: Path) -> None:
    moment = NOON_S
    files = MetricsFiles(
        str(tmp_path / "logs"), max_bytes=1000, keep=2, _now=lambda: moment, _clock=lambda: moment
    )
    for step in range(40):
        moment += 1
        files.take(logged({"loss": [float(step)]}, step=step))
    files.close()
    names = sorted(path.name for path in (tmp_path / "logs").iterdir())
    assert len(names) == 2
    assert all((tmp_path / "logs" / name).stat().st_size <= 1000 for name in names)
    assert lines(tmp_path, names[-1])[-1]["step"] == 39


def steps(tmp_path: Path) -> list[dict[str, object]]:
    """The lines that are written so far."""
    name = "training_metrics_20250730_123456.jsonl"
    return lines(tmp_path, name) if (tmp_path / "logs" / name).exists() else []


def test_metrics_of_a_step_that_arrive_separately_are_one_line(
    files: MetricsFiles, clock: Clock, tmp_path: Path
) -> None:
    files.take(logged({"gradient_norm": [3.0]}))
    files.take(logged({"loss": [0.5, 0.25], "epoch": [0.0, 0.0]}))
    clock.seconds = 1.0
    files.take(logged({STEP_SECONDS: [0.5, 0.25], "memory/allocated_bytes": [MIB, 2 * MIB]}))
    assert steps(tmp_path) == []
    clock.seconds = 2.0
    files.take(gpu({"gpu/power_watts": [1.0]}))
    first, second = steps(tmp_path)
    assert list(first) == TRAINING_FIELDS
    assert (first["loss"], first["gradient_norm"], first["step_seconds"]) == (0.5, 3.0, 0.5)
    assert (first["throughput_steps_per_sec"], first["memory_allocated_mb"]) == (2.0, 1.0)
    assert (second["step"], second["gradient_norm"], second["memory_allocated_mb"]) == (1001, None, 2.0)


def test_a_stopped_agent_leaves_incomplete_steps_to_the_next(clock: Clock, tmp_path: Path) -> None:
    first, second = (MetricsFiles(str(tmp_path / "logs"), _clock=clock) for _ in range(2))
    first.take(logged({"loss": [4.0, 3.0, 2.0]}, step=0))
    first.take(logged({STEP_SECONDS: [0.5, 0.5]}, step=0))
    first.close()
    second.take(logged({STEP_SECONDS: [0.5]}, step=2))
    second.take(logged({"loss": [1.0], STEP_SECONDS: [0.5]}, step=3))
    second.finish("run", "s1", 0)
    written = [
        json.loads(line)["step"]
        for path in sorted((tmp_path / "logs").iterdir())
        for line in path.read_text().splitlines()
    ]
    assert written == [0, 1, 2, 3]


def test_a_late_metric_makes_no_second_line(files: MetricsFiles, clock: Clock, tmp_path: Path) -> None:
    files.take(logged({"loss": [0.5]}))
    clock.seconds = 5.0
    files.take(logged({"gradient_norm": [3.0]}))
    files.take(logged({STEP_SECONDS: [0.5]}))
    files.close()
    assert [(line["step"], line["loss"]) for line in steps(tmp_path)] == [(1000, 0.5)]


def test_a_line_waits_longer_for_a_loss_that_the_gpu_has_not_computed(
    files: MetricsFiles, clock: Clock, tmp_path: Path
) -> None:
    files.take(logged({STEP_SECONDS: [1.0], "loss": [9.0]}))
    files.take(logged({STEP_SECONDS: [1.0]}, step=1001))
    clock.seconds = 10.0
    files.take(logged({"loss": [8.0]}, step=1001))
    files.take(logged({STEP_SECONDS: [1.0]}, step=1002))
    clock.seconds = 50.0
    files.take(gpu({"gpu/power_watts": [1.0]}))
    assert [line["loss"] for line in steps(tmp_path)] == [9.0, 8.0, None]


def test_steps_between_two_losses_have_lines_without_one(
    files: MetricsFiles, clock: Clock, tmp_path: Path
) -> None:
    files.take(logged({STEP_SECONDS: [0.5] * 5}))
    files.take(logged({"loss": [9.0]}, step=1000))
    files.take(logged({"loss": [8.0]}, step=1004))
    clock.seconds = 2.0
    files.take(gpu({"gpu/power_watts": [1.0]}))
    assert [line["loss"] for line in steps(tmp_path)] == [9.0, None, None, None, 8.0]


@pytest.mark.parametrize("epoch_s", [0.5, 100.0], ids=["while others wait", "later"])
def test_a_repeated_step_has_its_own_line(
    files: MetricsFiles, clock: Clock, tmp_path: Path, epoch_s: float
) -> None:
    for epoch in range(3):
        files.take(logged({"loss": [1.0, 2.0], "epoch": [epoch, epoch]}, step=0, later_s=10 * epoch))
        clock.seconds += epoch_s
    for epoch in range(3):
        files.take(logged({STEP_SECONDS: [0.5 + epoch] * 2}, step=0, later_s=10 * epoch))
    files.close()
    expected = [(epoch, step) for epoch in range(3) for step in range(2)]
    lines = steps(tmp_path)
    assert [(line["epoch"], line["step"]) for line in lines] == expected
    if 3 * epoch_s < WAIT_S:
        assert [line["step_seconds"] for line in lines] == [0.5, 0.5, 1.5, 1.5, 2.5, 2.5]


def test_lines_are_in_order_of_time_even_if_rows_arrive_out_of_order(
    files: MetricsFiles, clock: Clock, tmp_path: Path
) -> None:
    files.take(logged({"loss": [9.0]}, step=0))
    files.take(logged({"loss": [8.0]}, step=4))
    clock.seconds = 1.0
    files.take(logged({STEP_SECONDS: [0.5] * 6}, step=0))
    files.take(logged({"gap/epoch_seconds": [0.1]}, step=3))
    clock.seconds = 2.5
    files.take(gpu({"gpu/power_watts": [1.0]}))
    files.finish("run", "s1", 0)
    lines = steps(tmp_path)
    assert [line["step"] for line in lines] == list(range(6))
    assert [line["epoch"] for line in lines] == [0, 0, 0, 1, 1, 1]


def test_a_watched_run_has_epochs_and_samples_of_its_batches(files: MetricsFiles, tmp_path: Path) -> None:
    files.take(logged({"batch/samples": [8.0]}, step=0))
    files.take(logged({STEP_SECONDS: [0.5] * 4}, step=0))
    files.take(logged({"gap/epoch_seconds": [0.1]}, step=2))
    files.close()
    lines = steps(tmp_path)
    assert [line["epoch"] for line in lines] == [0, 0, 1, 1]
    assert [line["throughput_samples_per_sec"] for line in lines] == [16.0] * 4


def test_a_run_without_epochs_or_batches_has_null_for_both(files: MetricsFiles, tmp_path: Path) -> None:
    files.take(logged({STEP_SECONDS: [0.5]}))
    files.close()
    (line,) = steps(tmp_path)
    assert (line["epoch"], line["throughput_samples_per_sec"]) == (None, None)


def test_the_rank_that_logs_the_loss_is_written(files: MetricsFiles, clock: Clock, tmp_path: Path) -> None:
    files.take(logged({STEP_SECONDS: [0.5]}, rank=1))
    files.take(logged({STEP_SECONDS: [0.5], "loss": [3.0]}, rank=0))
    clock.seconds = 2.0
    files.take(logged({STEP_SECONDS: [0.5]}, rank=1, step=1001))
    files.close()
    assert [(line["step"], line["loss"]) for line in steps(tmp_path)] == [(1000, 3.0)]


def test_waiting_lines_are_written_when_a_rank_ends(files: MetricsFiles, tmp_path: Path) -> None:
    files.take(logged({"loss": [3.0]}))
    files.finish("run", "s1", 1)
    assert steps(tmp_path) == []
    files.finish("run", "s1", 0)
    files.finish("run", "s1", 0)
    files.close()
    assert [line["loss"] for line in steps(tmp_path)] == [3.0]


def test_lines_that_could_not_be_written_are_written_later_and_once(
    files: MetricsFiles, clock: Clock, tmp_path: Path
) -> None:
    (tmp_path / "logs").write_text("in the way of the folder")
    files.take(logged({"loss": [3.0]}))
    clock.seconds = 2.0
    with pytest.raises(OSError, match="File exists"):
        files.take(logged({"loss": [2.0]}, step=1001))
    (tmp_path / "logs").unlink()
    files.take(logged({"loss": [1.0]}, step=1002))
    files.close()
    assert [line["loss"] for line in steps(tmp_path)] == [3.0, 2.0, 1.0]


WATCHED = """
    import json, sys, torch, stepscope
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(torch.randn(24, 4), batch_size=8)
    settings = {"exporters": {"metrics_files": {"directory": sys.argv[1]}}}
    with stepscope.TrainingMonitor(settings, run="watched") as monitor:
        if sys.argv[2] != "plain":
            monitor.watch(model, optimizer)
        for epoch in range(2):
            for batch in loader if sys.argv[2] == "plain" else monitor.batches(loader):
                loss = model(batch).square().mean()
                loss.backward()
                optimizer.step()
                if sys.argv[2] == "logged":
                    monitor.log_training_step(loss=loss, epoch=epoch, optimizer=optimizer)
                elif sys.argv[2] == "plain":
                    monitor.log_training_step(model=model, optimizer=optimizer, loss=loss, epoch=epoch)
                optimizer.zero_grad()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loop", "filled"),
    [
        ("watched", ["epoch", "throughput_samples_per_sec"]),
        ("logged", ["epoch", "loss", "learning_rate", "throughput_samples_per_sec"]),
        ("plain", ["epoch", "loss", "learning_rate"]),
    ],
)
def test_every_step_of_a_real_run_is_one_line_when_it_has_ended(
    loop: str, filled: list[str], run_script, tmp_path: Path
) -> None:
    assert run_script(WATCHED, tmp_path / "logs", loop).returncode == 0
    (path,) = (tmp_path / "logs").glob("training_metrics_*.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(6))
    assert [line["epoch"] for line in lines] == [0, 0, 0, 1, 1, 1]
    for name in ["timestamp", "step_seconds", "throughput_steps_per_sec", *filled]:
        assert all(line[name] is not None for line in lines), name
    if loop != "plain":
        assert lines[0]["gradient_norm"] is not None


def test_a_run_writes_the_files_if_they_are_configured(folder: Path, tmp_path: Path) -> None:
    config = {"exporters": {"metrics_files": {"directory": str(tmp_path / "logs")}}}
    with stepscope.TrainingMonitor(config, run="a", directory=folder) as monitor:
        for step in range(5):
            monitor.log_training_step(loss=1.0 / (step + 1), learning_rate=0.1)
    (path,) = (tmp_path / "logs").glob("training_metrics_*.jsonl")
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [0, 1, 2, 3, 4]


STOPS_THE_AGENT = """
    import os, pathlib, signal, sys, stepscope
    from stepscope.agent.process.election import agent_pid
    settings = {"exporters": {"metrics_files": {"directory": sys.argv[1]}}}
    folder = pathlib.Path(os.environ["STEPSCOPE_DIR"])
    def stored(folder):
        try:
            return stepscope.open_store(folder).run("a").series("loss")
        except stepscope.errors.StepscopeError:
            return []
    with stepscope.TrainingMonitor(settings, run="a") as monitor:
        for step in range(20):
            monitor.log({"loss": float(step)}, step=step)
            if step == 9:
                while (pid := agent_pid(folder)) is None or len(stored(folder)) < 10:
                    pass
                os.kill(pid, signal.SIGTERM)
                while agent_pid(folder) == pid:
                    pass
"""


@pytest.mark.slow
def test_a_terminated_agent_writes_waiting_lines_and_the_next_continues(run_script, tmp_path: Path) -> None:
    result = run_script(STOPS_THE_AGENT, tmp_path / "logs")
    assert result.returncode == 0, result.stderr
    written = [
        json.loads(line)["step"]
        for path in sorted((tmp_path / "logs").glob("training_metrics_*.jsonl"))
        for line in path.read_text().splitlines()
    ]
    assert written == list(range(20))


@pytest.mark.parametrize("options", [{"max_bytes": -1}, {"max_bytes": 100}, {"keep": -1}, {"keep": 0}])
def test_sizes_that_are_too_small_are_refused(tmp_path, options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        MetricsFiles(str(tmp_path), **options)
