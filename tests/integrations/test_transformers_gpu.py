"""The figures of a GPU are in the logs of a Transformers `Trainer` and in its run."""

from __future__ import annotations

import copy
import logging
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepscope import GPUMonitor
from stepscope.devices.find_gpus import GpusFound
from stepscope.devices.gpu import GpuFacts, GpuReading
from stepscope.devices.scripted import ScriptedGpu
from stepscope.errors import ConfigError
from stepscope.reading import Run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # of the framework
    pytest.mark.usefixtures("without_agent"),
]
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from stepscope.integrations.transformers import (  # noqa: E402 - it needs transformers
    GPUMonitoringCallback,
    StepscopeCallback,
)
from tests.integrations.tiny_trainer import tiny_trainer  # noqa: E402


def one_gpu(**_: bool) -> GpusFound:
    facts = GpuFacts("GPU-0", 0, "Scripted", "NVIDIA", pci_bus_id="0000:00:00.0")
    return GpusFound([ScriptedGpu(facts, [GpuReading(utilization_ratio=0.75, power_watts=300.0)])], [])


class WaitsForAReading(transformers.TrainerCallback):
    """Lets the first step begin when the GPU was read."""

    def __init__(self, gpu: GPUMonitor, until: Callable[..., None]) -> None:
        self.gpu, self.until = gpu, until

    def on_step_begin(self, args: Any, state: Any, control: Any, **objects: Any) -> None:
        self.until(self.gpu.get_current_metrics)


class Printed(transformers.TrainerCallback):
    """Keeps what callbacks get that print it."""

    def __init__(self) -> None:
        self.logs: list[dict[str, Any]] = []

    def on_log(self, args, state, control, logs=None, **objects) -> None:
        self.logs.append(dict(logs))


@pytest.mark.parametrize("is_first", [True, False])
def test_figures_are_logged_every_few_steps(
    is_first: bool, folder: Path, tmp_path: Path, read: Callable[[str], Run], until: Callable[..., None]
) -> None:
    gpu, printed = GPUMonitor(sample_interval=0.1, _find=one_gpu), Printed()
    ours = [GPUMonitoringCallback(gpu, log_interval=5), StepscopeCallback(run="tiny", directory=folder)]
    callbacks = [*(ours if is_first else reversed(ours)), WaitsForAReading(gpu, until), printed]
    trainer = tiny_trainer(tmp_path / "out", callbacks)
    trainer.train()
    entries = [entry for entry in trainer.state.log_history if "gpu_power_draw_watts" in entry]
    assert [entry["step"] for entry in entries] == [5, 10, 15, 20]
    assert {entry["gpu_utilization_percent"] for entry in entries} == {75.0}
    run = read("tiny")
    assert run.series("gpu_utilization_percent").steps.tolist() == [5, 10, 15, 20]
    assert "train/gpu_utilization_percent" not in {series.key for series in run.keys()}
    assert printed.logs[0]["gpu_power_draw_watts"] == 300.0
    assert "gpu_power_draw_watts" not in printed.logs[-1]  # the summary is also what `train` returns


def test_without_a_gpu_one_line_says_so(tmp_path: Path, until: Callable[..., None], caplog) -> None:
    caplog.set_level(logging.WARNING, "stepscope")
    gpu = GPUMonitor(sample_interval=0.1)
    gpu.start()
    until(lambda: gpu.reason)
    trainer = tiny_trainer(tmp_path / "out", [GPUMonitoringCallback(gpu, log_interval=1)], max_steps=3)
    trainer.train()
    lines = [record.message for record in caplog.records if record.name.startswith("stepscope")]
    if gpu.get_current_metrics() is None:
        assert lines == [gpu.reason]
        assert all("gpu_utilization_percent" not in entry for entry in trainer.state.log_history)


def test_a_copy_reads_the_same_gpu(until: Callable[..., None]) -> None:
    with GPUMonitor(gpu_index=0, sample_interval=0.1, history_size=7, _find=one_gpu) as gpu:
        callback = GPUMonitoringCallback(gpu, log_interval=3)
        assert copy.deepcopy(callback).gpu_monitor is gpu
        pickled = pickle.loads(pickle.dumps(callback))
    assert (pickled.gpu_monitor.gpu_index, pickled.gpu_monitor.sample_interval) == (0, 0.1)
    assert pickled.log_interval == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((5,), "gpu_monitor is 5; it must be a GPUMonitor"),
        ((GPUMonitor(), 0), "log_interval is 0; it must be a number of steps, 1 or more"),
        ((GPUMonitor(), 10, 5), "monitor is 5; it must be a TrainingMonitor"),
    ],
)
def test_wrong_arguments_are_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        GPUMonitoringCallback(*arguments)
