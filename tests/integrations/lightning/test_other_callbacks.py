"""The callbacks for throughput, profiles and resources, alone and together."""

from __future__ import annotations

import csv
import json
import time
from pathlib import Path
from typing import Any

import pytest

from stepscope.errors import ConfigError
from stepscope.integrations.lightning import (
    ProfilerCallback,
    ResourceMonitorCallback,
    StepscopeCallback,
    ThroughputMonitorCallback,
)
from tests.integrations.lightning.fits import loader, module, package, trainer, weights_of

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]


@pytest.fixture(autouse=True)
def no_agent(without_agent: None) -> None:
    """The tests read the journals themselves."""


def recording_logger() -> Any:
    """A logger of another maker, as W&B's is: it has an experiment, and is called from every rank."""

    class Recording(package().loggers.Logger):
        def __init__(self) -> None:
            super().__init__()
            self.rows: list[tuple[int | None, dict[str, float]]] = []

        name, version = "other", "1"

        @property
        def experiment(self):
            return self.rows

        def log_metrics(self, metrics, step=None):
            self.rows.append((step, dict(metrics)))

        def log_hyperparams(self, params, *_):
            pass

    return Recording()


def rows_with(logger: Any, prefix: str) -> list[tuple[int, dict[str, float]]]:
    return [(step, row) for step, row in logger.rows if any(key.startswith(prefix) for key in row)]


def test_throughput_is_logged_with_every_logger_of_the_trainer(tmp_path: Path, capsys) -> None:
    other, files = recording_logger(), package().loggers.CSVLogger(tmp_path, flush_logs_every_n_steps=1)
    callback = ThroughputMonitorCallback(log_interval=3)
    trainer(callback, logger=[other, files], log_every_n_steps=1).fit(module(), loader(), loader(8))
    rows = rows_with(other, "throughput/")
    assert [step for step, _ in rows] == [2, 5, 8, 11, 14]
    for _, row in rows:
        assert row["throughput/samples_per_sec"] == pytest.approx(4 * row["throughput/batches_per_sec"])
        assert row["throughput/avg_batch_time_ms"] == pytest.approx(1e3 / row["throughput/batches_per_sec"])
        assert row["memory/process_rss_mb"] > 10
    with (Path(files.log_dir) / "metrics.csv").open() as file:
        logged = [row["throughput/samples_per_sec"] for row in csv.DictReader(file)]
    assert [float(text) for text in logged if text] == pytest.approx(
        [row["throughput/samples_per_sec"] for _, row in rows]
    )
    assert "batches/s" in capsys.readouterr().out


def test_parts_of_it_can_be_switched_off(capsys) -> None:
    other = recording_logger()
    callbacks = [
        ThroughputMonitorCallback(log_interval=2, track_memory=False, track_timing=False),
        ThroughputMonitorCallback(enabled=False, log_interval=1),
    ]
    trainer(*callbacks, logger=other, max_epochs=1).fit(module(), loader())
    names = {name for _, row in rows_with(other, "throughput/") for name in row}
    assert names == {"throughput/samples_per_sec", "throughput/batches_per_sec"}
    assert capsys.readouterr().out.count("Throughput") == 1


@pytest.mark.parametrize("is_first", [True, False])
def test_with_the_main_callback_figures_are_those_of_its_run(folder: Path, read, is_first: bool) -> None:
    other = recording_logger()
    callbacks = [ThroughputMonitorCallback(log_interval=4), StepscopeCallback(run="fit", directory=folder)]
    trainer(*callbacks[:: 1 if is_first else -1], logger=other, max_epochs=1).fit(module(), loader())
    run = read("fit")
    seconds = run.series("step_seconds").values
    assert len(seconds) == 8
    logged = [row["throughput/avg_batch_time_ms"] for _, row in rows_with(other, "throughput/")]
    assert logged == pytest.approx([1e3 * seconds[:4].mean(), 1e3 * seconds[4:].mean()], rel=1e-6)
    assert run.series("throughput/avg_batch_time_ms").values.tolist() == logged
    assert run.series("throughput/avg_batch_time_ms").steps.tolist() == [3, 7]
    assert run.series("loss").steps.tolist() == list(range(8))


def test_validation_is_not_part_of_the_throughput() -> None:
    evaluated = []

    def validation_step(self, batch, index):
        began = time.monotonic()
        time.sleep(0.05)
        evaluated.append(time.monotonic() - began)

    other = recording_logger()
    began = time.monotonic()
    trainer(ThroughputMonitorCallback(log_interval=16), logger=other, val_check_interval=4).fit(
        module(validation_step=validation_step), loader(), loader(8)
    )
    took = time.monotonic() - began
    ((_, row),) = rows_with(other, "throughput/")
    assert len(evaluated) > 8
    assert 16 * row["throughput/avg_batch_time_ms"] / 1e3 < took - sum(evaluated)


def test_the_profiler_writes_traces_and_prints_the_largest_operations(tmp_path: Path, capsys) -> None:
    callback = ProfilerCallback(
        enabled=True,
        profile_epochs=[1],
        profile_steps=3,
        warmup_steps=1,
        activities=["CPU"],
        record_shapes=True,
        with_stack=True,
        output_dir=tmp_path / "traces",
        log_top_k_ops=4,
    )
    bare, profiled = module(), module()
    other = recording_logger()
    trainer().fit(bare, loader())
    trainer(callback, logger=other).fit(profiled, loader())
    assert weights_of(profiled) == weights_of(bare)
    (profile,) = callback.profiles
    assert (profile.epoch, profile.steps) == (1, 3)
    assert any(operation.shapes for operation in profile.operations)
    (trace,) = (tmp_path / "traces").glob("*.trace.json.gz")
    (summary,) = set((tmp_path / "traces").glob("*.json")) - {trace}
    assert json.loads(summary.read_text())["steps"] == 3
    lines = capsys.readouterr().out.splitlines()
    begin = next(index for index, line in enumerate(lines) if line.startswith("Profiler: 3 batches"))
    assert sum(" calls " in line for line in lines[begin:]) == 4
    assert str(trace) in lines[begin + 5]
    ((_, row),) = rows_with(other, "profiler/")
    assert sum(row.values()) == pytest.approx(1)


def test_the_profiler_is_off_by_default_and_says_if_it_never_began(
    folder: Path, tmp_path: Path, capsys
) -> None:
    off = ProfilerCallback(profile_epochs=0, warmup_steps=0, profile_steps=1, output_dir=tmp_path / "off")
    never = ProfilerCallback(enabled=True, profile_epochs=[7], output_dir=tmp_path / "never")
    trainer(off, never).fit(module(), loader())
    assert off.profiles == never.profiles == ()
    assert not (tmp_path / "off").exists()
    assert "nothing was profiled. Epochs 7 (from 0) were not reached" in capsys.readouterr().out


def test_traces_are_in_the_store_folder_of_the_run_and_can_be_left_out(folder: Path, tmp_path: Path) -> None:
    options = {"enabled": True, "profile_epochs": 0, "profile_steps": 2, "warmup_steps": 0}
    run = StepscopeCallback(run="fit", directory=folder)
    trainer(ProfilerCallback(**options), run).fit(module(), loader())
    assert len(list((folder / "profiles").glob("*.trace.json.gz"))) == 1
    quiet = ProfilerCallback(**options, output_dir=tmp_path / "none", export_chrome_trace=False)
    trainer(quiet).fit(module(), loader())
    assert len(quiet.profiles) == 1
    assert not (tmp_path / "none").exists()


def test_resources_are_logged_and_written_as_a_time_series(
    tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepscope.integrations.lightning.resources.SAMPLE_EVERY_S", 0.1)
    other, path = recording_logger(), tmp_path / "new" / "series.csv"
    callback = ResourceMonitorCallback(log_interval=4, export_timeseries=True, timeseries_path=path)
    pause = {"on_train_batch_end": lambda self, *_: time.sleep(0.05)}
    trainer(callback, logger=other).fit(module(**pause), loader())
    rows = [row for _, row in rows_with(other, "resource/")]
    assert all(0 <= row["resource/memory_ratio"] <= 1 for row in rows if "resource/memory_ratio" in row)
    assert any(0 <= row.get("resource/cpu_percent", -1) <= 100 for row in rows)
    assert any(0 <= row.get("resource/io_wait", -1) <= 1 for row in rows)
    with path.open() as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == len(rows)
    assert lines[0]["resource/memory_ratio"] == str(rows[0]["resource/memory_ratio"])
    assert "Resources: processors busy" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("kind", "options", "expected"),
    [
        (
            ThroughputMonitorCallback,
            {"log_interval": 0},
            "log_interval is 0; it must be a whole number, 1 or more",
        ),
        (ThroughputMonitorCallback, {"enabled": "yes"}, "enabled is 'yes'; it must be true or false"),
        (
            ProfilerCallback,
            {"activities": ["gpu"]},
            "activities is \\['gpu'\\]; it must be a list of cpu and cuda",
        ),
        (
            ProfilerCallback,
            {"profile_epochs": "1"},
            "profile_epochs is '1'; it must be a list of whole numbers",
        ),
        (
            ProfilerCallback,
            {"log_top_k_ops": -1},
            "log_top_k_ops is -1; it must be a whole number, 0 or more",
        ),
        (ProfilerCallback, {"output_dir": 5}, "output_dir is 5; it must be the path"),
        (
            ResourceMonitorCallback,
            {"io_wait_threshold": 30},
            "io_wait_threshold is 30; it must be a number from 0",
        ),
        (ResourceMonitorCallback, {"timeseries_path": ""}, "timeseries_path is ''; it must be the path"),
        (ResourceMonitorCallback, {"gpu_monitoring": 1}, "gpu_monitoring is 1; it must be true or false"),
    ],
)
def test_wrong_options_are_refused(kind: type, options: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError, match=f"{kind.__name__}: {expected}"):
        kind(**options)


def test_a_logger_that_fails_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(type(recording_logger())):
        def log_metrics(self, metrics, step=None):
            if any(name.startswith("throughput") for name in metrics):
                raise OSError("disk full")

    model = module()
    trainer(ThroughputMonitorCallback(log_interval=1), logger=Failing()).fit(model, loader())
    assert len(model.losses) == 16
    said = [record.message for record in caplog.records if record.name.startswith("stepscope")]
    assert said == ["Logging with Failing failed: OSError('disk full')"]
