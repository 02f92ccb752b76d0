"""Every example runs by itself and leaves in the store what it says."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import stepscope

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepscope.reading import Run

EXAMPLES = Path(__file__).parents[2] / "examples"

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")


@pytest.fixture
def example(folder: Path) -> Callable[[str], str]:
    """Runs an example and returns what it printed."""

    def run(name: str) -> str:
        done = subprocess.run(
            [sys.executable, str(EXAMPLES / f"{name}.py")],
            env={**os.environ, "STEPSCOPE_DIR": str(folder), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        return done.stdout

    return run


def keys_of(run: Run) -> set[str]:
    return {series.key for series in run.keys()}


def test_simple_records_two_epochs(example: Callable[[str], str], read: Callable[[str], Run]) -> None:
    assert "stepscope show simple" in example("simple")
    run = read("simple")
    assert run.status == "finished"
    assert run.series("loss").steps.tolist() == list(range(200))
    assert run.series("epoch").values[[0, -1]].tolist() == [0, 1]
    assert len(run.series("phase/data_seconds")) == 200


def test_integration_records_custom_metrics_and_the_optimizers_rate(
    example: Callable[[str], str], read: Callable[[str], Run]
) -> None:
    example("integration")
    run = read("integration")
    assert keys_of(run) >= {"loss", "accuracy", "learning_rate", "throughput", "weight_norm"}
    rates = run.series("learning_rate").values
    assert len(rates) == 150
    assert rates[0] > rates[-1]
    assert run.series("accuracy").values[-10:].mean() > 0.9
    assert [event.fields["epoch"] for event in run.events("epoch_end")] == [0, 1, 2]


def test_older_monitor_prints_both_summaries(
    example: Callable[[str], str], read: Callable[[str], Run]
) -> None:
    printed = example("older_monitor")
    assert "100 steps, loss 0.010 to 1.000" in printed
    assert "one-object: 100 steps" in printed
    assert keys_of(read("four-numbers")) == {
        *("loss", "epoch", "learning_rate", "batch_size", "step_seconds"),
    }
    assert read("one-object").series("epoch").values[-1] == 1


@needs_torch
def test_torch_loop_records_phases_and_the_schedule(
    example: Callable[[str], str], read: Callable[[str], Run]
) -> None:
    example("torch_loop")
    run = read("torch-loop")
    assert keys_of(run) >= {f"phase/{name}_seconds" for name in ("data", "forward", "backward", "optimizer")}
    assert len(set(run.series("learning_rate").values)) == 5
    assert run.series("loss").values[-1] < run.series("loss").values[0]


@needs_torch
def test_dataloader_workers_log_into_the_same_run(
    example: Callable[[str], str], read: Callable[[str], Run]
) -> None:
    example("dataloader_workers")
    run = read("workers")
    assert sorted(run.series("decode_seconds").steps) == list(range(256))
    assert [one.role for one in run.segments[0].processes].count("worker") == 2
    assert run.status == "finished"


@pytest.mark.parametrize("name", ["torch_loop", "dataloader_workers"])
def test_an_example_that_needs_torch_says_what_to_install(name: str) -> None:
    code = "import runpy, sys; sys.modules['torch'] = None; runpy.run_path(sys.argv[1], run_name='__main__')"
    command = [sys.executable, "-c", code, str(EXAMPLES / f"{name}.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pip install 'stepscope[torch]'" in done.stderr


def test_resume_leaves_two_segments_and_overwrites_nothing(
    example: Callable[[str], str], read: Callable[[str], Run]
) -> None:
    example("resume")
    run = read("resume")
    assert [segment.status for segment in run.segments] == ["failed", "finished"]
    assert run.series("loss").steps.tolist() == [*range(70), *range(61, 100)]


def test_read_back_reads_in_every_way(example: Callable[[str], str], folder: Path) -> None:
    printed = example("read_back")
    assert "optimizer: sgd" in printed
    assert "series: 10000 points" in printed
    assert "buckets: 79 of 128 steps" in printed
    assert "event at step 7500: accuracy 0.75" in printed
    assert "9999" in printed.splitlines()[-1] or "pip install" in printed
    assert len(stepscope.open_store(folder).runs()) == 1


def test_every_example_is_named_in_the_overview() -> None:
    overview = (EXAMPLES / "README.md").read_text()
    for path in EXAMPLES.glob("*.py"):
        assert f"[{path.name}]({path.name})" in overview


def test_custom_alert_tells_of_both_rules(example: Callable[[str], str]) -> None:
    assert sorted(example("custom_alert").splitlines()) == [
        "critical: Accuracy is 30%.",
        "warning: High validation loss: 2.50",
    ]


def test_machine_reads_the_machine_against_training_steps(
    example: Callable[[str], str], read: Callable[[str], Run]
) -> None:
    printed = example("machine")
    assert "memory of the training: " in printed
    assert re.search(r"^  steps \d+ to \d+: processors \d+% busy$", printed, re.MULTILINE)
    run = read("machine")
    assert len(run.series("process/rss_bytes", rank=0, device="")) > 5


def test_gpu_callback_records_its_steps_with_or_without_a_gpu(
    folder: Path, read: Callable[[str], Run]
) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "gpu_callback.py")],
        env={**os.environ, "STEPSCOPE_DIR": str(folder)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "steps: 200, files: " in done.stdout
    run = read("gpu-callback")
    assert len(run.series("loss")) == 200
    assert {"gradient_norm", "throughput", "epoch"} <= keys_of(run)


def test_structured_logs_tell_the_step_and_no_secret(example: Callable[[str], str]) -> None:
    printed = example("structured_logs")
    assert "training 0 29 epoch 2 done {'val_loss':" in printed
    assert "https://[redacted:url]@data.example.com/set" in printed
    assert "hunter2" not in printed


def test_schedule_tells_what_each_phase_was_worth(example: Callable[[str], str]) -> None:
    name, warm_up, high, low, lowest = example("schedule").splitlines()
    assert name == "linear warm-up, then 3 levels"
    assert warm_up.startswith("  steps 0 to 98, rate 0.2: gave 9")
    assert high == "  steps 99 to 1099, rate 0.2: no measurable effect"
    assert low.startswith("  steps 1100 to 2099, rate 0.02: gave 5% of the improvement in 32% of the steps")
    assert lowest.endswith("rate 0.002: no measurable effect")


@needs_torch
def test_gradients_names_the_network_whose_first_layers_hardly_learn(example: Callable[[str], str]) -> None:
    printed = example("gradients")
    assert "relu: gradient of the first layer" in printed
    assert "  vanishing: " in printed.partition("sigmoid:")[2]


@needs_torch
def test_profile_model_measures_a_model(example: Callable[[str], str]) -> None:
    assert len(example("profile_model").splitlines()) > 3
