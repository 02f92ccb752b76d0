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
def example(folder: Path) -> Callable[..., str]:
    """Runs an example and returns what it printed."""

    def run(name: str, *, alerts: bool = False) -> str:
        done = subprocess.run(
            [sys.executable, str(EXAMPLES / f"{name}.py")],
            env={**os.environ, "STEPSCOPE_DIR": str(folder), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        # An alert is printed if it opens before the example ends, which a busy machine gives it time for.
        assert done.stderr == "" or alerts
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


@pytest.mark.slow
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


@pytest.mark.slow
@needs_torch
def test_torch_loop_records_phases_and_the_schedule(
    example: Callable[[str], str], read: Callable[[str], Run]
) -> None:
    example("torch_loop")
    run = read("torch-loop")
    assert keys_of(run) >= {f"phase/{name}_seconds" for name in ("data", "forward", "backward", "optimizer")}
    assert len(set(run.series("learning_rate").values)) == 5
    assert run.series("loss").values[-1] < run.series("loss").values[0]


@pytest.mark.slow
@needs_torch
def test_dataloader_workers_log_into_the_same_run(
    example: Callable[[str], str], read: Callable[[str], Run]
) -> None:
    example("dataloader_workers")
    run = read("workers")
    assert sorted(run.series("decode_seconds").steps) == list(range(256))
    assert [process.role for process in run.segments[0].processes].count("worker") == 2
    assert run.status == "finished"


@pytest.mark.parametrize("name", ["torch_loop", "dataloader_workers"])
def test_an_example_that_needs_torch_says_what_to_install(name: str) -> None:
    code = "import runpy, sys; sys.modules['torch'] = None; runpy.run_path(sys.argv[1], run_name='__main__')"
    command = [sys.executable, "-c", code, str(EXAMPLES / f"{name}.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pip install 'stepscope[torch]'" in done.stderr


@pytest.mark.slow
def test_resume_leaves_two_segments_and_overwrites_nothing(
    example: Callable[[str], str], read: Callable[[str], Run]
) -> None:
    example("resume")
    run = read("resume")
    assert [segment.status for segment in run.segments] == ["failed", "finished"]
    assert run.series("loss").steps.tolist() == [*range(70), *range(61, 100)]


@pytest.mark.slow
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


@pytest.mark.slow
def test_custom_alert_notifies_of_both_rules(example: Callable[[str], str]) -> None:
    assert sorted(example("custom_alert").splitlines()) == [
        "critical: Accuracy is 30%.",
        "warning: High validation loss: 2.50",
    ]


@pytest.mark.slow
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
        timeout=120,
    )
    assert "steps: 200, files: " in done.stdout
    run = read("gpu-callback")
    assert len(run.series("loss")) == 200
    assert {"gradient_norm", "throughput", "epoch"} <= keys_of(run)


@pytest.mark.slow
def test_structured_logs_have_the_step_and_no_secret(example: Callable[[str], str]) -> None:
    printed = example("structured_logs")
    assert "training 0 29 epoch 2 done {'val_loss':" in printed
    assert "https://[redacted:url]@data.example.com/set" in printed
    assert "hunter2" not in printed


def test_schedule_shows_the_effect_of_each_phase(example: Callable[[str], str]) -> None:
    name, warm_up, high, low, lowest = example("schedule").splitlines()
    assert name == "linear warm-up, then 3 levels"
    assert warm_up.startswith("  steps 0 to 98, rate 0.2: gave 9")
    assert high == "  steps 99 to 1099, rate 0.2: no measurable effect"
    assert low.startswith("  steps 1100 to 2099, rate 0.02: gave 5% of the improvement in 32% of the steps")
    assert lowest.endswith("rate 0.002: no measurable effect")


@pytest.mark.slow
@needs_torch
def test_gradients_names_the_network_whose_first_layers_hardly_learn(example: Callable[[str], str]) -> None:
    printed = example("gradients")
    assert "relu: gradient of the first layer" in printed
    assert "  vanishing: " in printed.partition("sigmoid:")[2]


@pytest.mark.slow
@needs_torch
def test_profile_model_measures_a_model(example: Callable[[str], str]) -> None:
    assert len(example("profile_model").splitlines()) > 3


@pytest.mark.slow
def test_from_wandb_records_what_the_script_logs(
    example: Callable[[str], str], read: Callable[[str], Run]
) -> None:
    assert "look at it with: stepscope show from-wandb" in example("from_wandb")
    run = read("from-wandb")
    assert run.status == "finished"
    assert len(run.series("train/loss")) == 60
    assert run.series("train/loss").steps.tolist() == run.series("train/lr").steps.tolist()
    assert run.series("val.accuracy").steps.tolist() == [20, 41, 62]
    assert run.params["architecture"] == "CNN"


@pytest.mark.slow
def test_performance_monitor_finds_the_spike(example: Callable[..., str]) -> None:
    lines = example("performance_monitor", alerts=True).splitlines()
    assert lines[0] == "loss 0.137, 200 steps"
    assert lines[1] == "the loss is decreasing (significant, robust: decreasing)"
    assert lines[2:4] == ["step 150: loss 9.00", "warning: Loss is 9.00."]
    assert lines[4].startswith("convergence: ")
    assert "at step 150" in lines[4]
    assert lines[4].removeprefix("convergence: ") in Path("optimization_report.md").read_text()


@pytest.mark.slow
def test_ray_cluster_prints_used_resources_or_what_to_install(
    folder: Path, read: Callable[[str], Run]
) -> None:
    has_ray = importlib.util.find_spec("ray") is not None
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "ray_cluster.py")],
        env={**os.environ, "STEPSCOPE_DIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    if has_ray:
        assert done.stdout == "1 node, 50% of its processors in use\n", done.stderr
        assert read("ray-cluster").series("ray/cpu_utilization").values[-1] == 0.5
    else:
        assert done.returncode == 1
        assert "pip install 'stepscope[ray]'" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "run_name", "printed"),
    [
        ("lightning_fit", "lightning-fit", "Look at it: stepscope show lightning-fit"),
        ("lightning_hydra", "from-hydra", "callbacks: stepscope, throughput_monitor"),
    ],
)
def test_lightning_examples_record_every_step(
    name: str, run_name: str, printed: str, folder: Path, tmp_path: Path, read: Callable[[str], Run]
) -> None:
    pytest.importorskip("lightning", reason="lightning is not installed")
    pytest.importorskip("hydra", reason="hydra is not installed")
    overrides = ["callbacks.stepscope.run=from-hydra", "hydra.run.dir=."] if "hydra" in name else []
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py"), *overrides],
        cwd=tmp_path,
        env={**os.environ, "STEPSCOPE_DIR": str(folder), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert printed in done.stdout
    assert "Throughput: " in done.stdout
    assert "stepscope" not in done.stderr
    run = read(run_name)
    steps = len(run.series("step_seconds"))
    assert steps == {"lightning-fit": 150, "from-hydra": 80}[run_name]
    assert len(run.series("loss")) == steps


@pytest.fixture
def framework_example(folder: Path, tmp_path: Path) -> Callable[..., str]:
    """Runs an example of a framework, which logs what it likes, and returns what it printed."""

    def run(name: str, *options: str) -> str:
        done = subprocess.run(
            [sys.executable, str(EXAMPLES / f"{name}.py"), *options],
            cwd=tmp_path,
            env={**os.environ, "STEPSCOPE_DIR": str(folder), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.mark.slow
def test_transformers_trainer_records_two_segments(
    framework_example: Callable[..., str], read: Callable[[str], Run]
) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    assert "steps: 25, next: stepscope show transformers-trainer" in framework_example("transformers_trainer")
    run = read("transformers-trainer")
    assert [segment.status for segment in run.segments] == ["finished", "finished"]
    assert run.series("loss").steps.tolist() == list(range(1, 26))
    assert run.series("eval/loss").steps.tolist() == [5, 10, 15, 20, 25]


@pytest.mark.slow
def test_transformers_accelerate_records_a_step_for_four_batches(
    framework_example: Callable[..., str], read: Callable[[str], Run]
) -> None:
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    framework_example("transformers_accelerate")
    run = read("transformers-accelerate")
    assert run.series("step_seconds").steps.tolist() == list(range(48))
    assert len(run.series("loss")) == 48


@pytest.mark.slow
@pytest.mark.parametrize("model", ["tiny-llama", "folder"])
def test_qlora_trains_adapters_and_prints_a_summary(
    model: str, framework_example: Callable[..., str], read: Callable[[str], Run], tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("peft", reason="peft is not installed")
    if model == "folder":
        sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 300}
        config = transformers.GPT2Config(**sizes, bos_token_id=1, eos_token_id=1)
        transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path / "model")
        model = str(tmp_path / "model")
    logs, adapter = tmp_path / "logs", tmp_path / "adapter"
    printed = framework_example(
        *("qlora_finetune_monitored", "--model-config", model, "--output-dir", str(adapter)),
        *("--monitoring-log-dir", str(logs), "--max-steps", "4", "--run", "lora"),
    )
    assert "4 bits: o" in printed
    assert "steps: 4, loss: " in printed
    assert (adapter / "adapter_config.json").exists()
    assert list(logs.glob("training_metrics_*.jsonl"))
    run = read("lora")
    assert run.series("step_seconds").steps.tolist() == [1, 2, 3, 4]
    assert run.params["peft"]["default"]["r"] == 8


def test_qlora_names_the_line_that_is_not_data(tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text('{"text": "right"}\n{"nonsense": 1}\n')
    command = [sys.executable, str(EXAMPLES / "qlora_finetune_monitored.py"), "--data", str(data)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1
    assert f"{data}, line 2: expected a text, or a prompt and a completion" in done.stderr
