"""A GPU can be watched from inside a process, and a loop that calls back is recorded with it."""

from __future__ import annotations

import copy
import json
import time
from pathlib import Path

import pytest

import stepscope
from stepscope import GPUMonitor, TrainingMonitorCallback
from stepscope.devices.find_gpus import GpusFound
from stepscope.devices.gpu import GpuFacts, GpuReading
from stepscope.devices.scripted import ScriptedGpu
from stepscope.errors import ConfigError
from stepscope.schema.sample import Notice

GIB = 2**30


def scripted(*busy: float, name: str = "Scripted"):
    """GPUs of the same model, each with the given utilization, without fans."""

    def find(**_: bool) -> GpusFound:
        gpus = [
            ScriptedGpu(
                GpuFacts(f"GPU-{at}", at, name, "NVIDIA", pci_bus_id=f"0000:0{at}:00.0"),
                [
                    GpuReading(
                        utilization_ratio=ratio,
                        memory_used_bytes=20 * GIB,
                        memory_total_bytes=80 * GIB,
                        power_watts=300.0,
                        sm_clock_hertz=1.98e9,
                    )
                ],
            )
            for at, ratio in enumerate(busy)
        ]
        return GpusFound(gpus, [])

    return find


def test_a_gpu_is_sampled_and_what_it_does_not_give_is_none(until) -> None:
    with GPUMonitor(gpu_index=0, sample_interval=0.1, _find=scripted(0.95)) as gpu:
        until(lambda: len(gpu.history) > 1)
    newest = gpu.get_current_metrics()
    assert newest is not None
    assert (newest.utilization_percent, newest.memory_used_mb, newest.memory_percent) == (95.0, 20480.0, 25.0)
    assert (newest.power_draw_watts, newest.sm_clock_mhz) == (300.0, 1980.0)
    assert newest.fan_speed_percent is None
    assert abs(newest.timestamp - time.time()) < 60
    summary = gpu.get_summary()
    assert summary["utilization_percent"] == {"average": 95.0, "min": 95.0, "max": 95.0}
    assert "fan_speed_percent" not in summary
    assert gpu.reason is None


@pytest.mark.parametrize(
    ("visible", "index", "busy"),
    [(None, 1, 50.0), ("2,0", 0, 75.0), ("2,0", 1, 25.0), ("GPU-1", 0, 50.0)],
)
def test_the_index_is_that_of_cuda_in_this_process(
    visible: str | None, index: int, busy: float, until
) -> None:
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    gpu = GPUMonitor(index, 0.1, _find=scripted(0.25, 0.5, 0.75), _environment=environment)
    with gpu:
        until(gpu.get_current_metrics)
    assert gpu.history[0].utilization_percent == busy


def test_an_invalid_gpu_index_is_reported(until) -> None:
    with GPUMonitor(3, 0.1, _find=scripted(0.5)) as gpu:
        until(lambda: gpu.reason)
    assert gpu.reason == "This process sees 1 GPUs, so there is no cuda:3."
    assert (gpu.history, gpu.get_current_metrics(), gpu.get_summary()) == ([], None, {})


def test_without_a_gpu_the_reason_is_set_and_the_rest_is_empty(until) -> None:
    reason = "No NVIDIA driver is installed here."
    with GPUMonitor(0, 0.1, _find=lambda **_: GpusFound([], [Notice("gpu", reason)])) as gpu:
        until(lambda: gpu.reason)
    assert gpu.reason == reason
    assert gpu.history == []


def test_an_interval_out_of_range_is_refused_with_what_is_allowed() -> None:
    with pytest.raises(stepscope.StepscopeError, match="sample_interval is 0.01; it must be .* 0.1 to 600"):
        GPUMonitor(sample_interval=0.01)


def test_the_history_is_bounded(until) -> None:
    with GPUMonitor(0, 0.1, history_size=2, _find=scripted(0.5)) as gpu:
        until(lambda: len(gpu.history) == 2)
        first = gpu.history[0]
        until(lambda: gpu.history[0] != first)
    assert len(gpu.history) == 2


def test_a_loop_that_calls_back_is_a_run_with_files_beside_it(folder: Path, tmp_path: Path, until) -> None:
    gpu_monitor = GPUMonitor(gpu_index=0, sample_interval=0.1, log_dir=tmp_path / "logs", _find=scripted(0.9))
    monitor = stepscope.TrainingMonitor(run="called", directory=folder)
    callback = TrainingMonitorCallback(gpu_monitor, monitor)
    callback.on_train_begin()
    for step in range(5):
        callback.on_step_begin()
        callback.on_step_end(step=step, epoch=0.5, loss=1 / (step + 1), lr=1e-4, grad_norm=2.0, throughput=32)
    until(lambda: gpu_monitor.history)
    summary = callback.on_train_end()

    assert summary["training"]["total_steps"] == 5
    assert summary["gpu"]["utilization_percent"]["max"] == 90.0
    run = stepscope.open_store(folder).run("called")
    assert run.status == "finished"
    assert run.series("loss").values.tolist() == [1 / (step + 1) for step in range(5)]
    assert {"epoch", "gradient_norm", "learning_rate", "step_seconds", "throughput"} <= {
        known.key for known in run.keys()
    }
    (trained,) = (tmp_path / "logs").glob("training_metrics_*.jsonl")
    lines = [json.loads(line) for line in trained.read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 1, 2, 3, 4]
    assert (lines[0]["gradient_norm"], lines[0]["throughput_samples_per_sec"]) == (2.0, 32.0)
    (watched,) = (tmp_path / "logs").glob("gpu_metrics_*.jsonl")
    assert json.loads(watched.read_text().splitlines()[0])["utilization_percent"] == 90.0


def test_a_callback_works_with_no_run_and_no_gpu_at_all(folder: Path) -> None:
    callback = TrainingMonitorCallback(recorded=False)
    callback.on_train_begin()
    callback.on_step_begin()
    callback.on_step_end(step=0, loss=1.0)
    assert callback.on_train_end() == {}
    assert not folder.exists()


def test_a_log_folder_that_cannot_be_written_costs_the_files_alone(tmp_path: Path, until) -> None:
    (tmp_path / "logs").write_text("a file where a folder should be")
    with GPUMonitor(0, 0.1, log_dir=tmp_path / "logs", _find=scripted(0.5)) as gpu:
        until(lambda: len(gpu.history) > 2)
    assert gpu.history[-1].utilization_percent == 50.0


def test_a_callback_in_the_wrong_trainer_names_the_right_one() -> None:
    callback = TrainingMonitorCallback(recorded=False)
    with pytest.raises(
        ConfigError, match="from stepscope.integrations.transformers import StepscopeCallback"
    ):
        callback.on_init_end()
    with pytest.raises(ConfigError, match="from stepscope.integrations.lightning import StepscopeCallback"):
        _ = callback.state_dict
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = callback.nonsense
    assert isinstance(copy.copy(callback), TrainingMonitorCallback)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_trainers_that_are_given_the_wrong_callback_say_so(tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning", reason="lightning is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch = pytest.importorskip("torch")
    callback = TrainingMonitorCallback(recorded=False)
    with pytest.raises(ConfigError, match="For a trainer of Lightning"):
        lightning.Trainer(callbacks=[callback], logger=False, accelerator="cpu")
    args = transformers.TrainingArguments(str(tmp_path), report_to="none", use_cpu=True)
    with pytest.raises(ConfigError, match="For a trainer of Transformers"):
        transformers.Trainer(torch.nn.Linear(1, 1), args, callbacks=[callback])
