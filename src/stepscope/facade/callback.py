"""`TrainingMonitorCallback`: records a training loop through callbacks, together with a GPU."""

from __future__ import annotations

import sys
import time
from typing import Any, NoReturn

from stepscope.config.find import is_disabled
from stepscope.errors import ConfigError
from stepscope.exporters.metrics_files import MIB, RotatedLines, training_line
from stepscope.facade.gpu_monitor import GPUMonitor
from stepscope.guard import shown
from stepscope.recorder.monitor import TrainingMonitor
from stepscope.recorder.values import as_number, as_step

WRITE_EVERY_S = 1.0
"""Lines are written at this interval, so that not every step waits for a file."""

FRAMEWORKS = {
    "on_init_end": ("Transformers", "stepscope.integrations.transformers"),
    **dict.fromkeys(
        ("state_dict", "state_key", "setup", "on_fit_start"),
        ("Lightning", "stepscope.integrations.lightning"),
    ),
}
"""Frameworks, and the module of their callback, by what their trainers first read of a callback."""


class TrainingMonitorCallback:
    """Records steps as a run, while a `GPUMonitor` watches its GPU.

        callback = TrainingMonitorCallback(GPUMonitor(gpu_index=0))
        callback.on_train_begin()
        for step in range(steps):
            callback.on_step_begin()
            loss = train_step()
            callback.on_step_end(step=step, epoch=epoch, loss=loss, lr=lr)
        callback.on_train_end()

    Without `monitor`, one is created; with `recorded=False`, no run is recorded. If the GPU monitor has a
    `log_dir`, each step is a line of `training_metrics_*.jsonl` there. For trainers of Lightning and
    Transformers there are callbacks in `stepscope.integrations`.
    """

    def __init__(
        self,
        gpu_monitor: GPUMonitor | None = None,
        monitor: TrainingMonitor | None = None,
        *,
        recorded: bool = True,
    ) -> None:
        if not isinstance(gpu_monitor, GPUMonitor | None):
            raise ConfigError(f"argument: gpu_monitor is {shown(gpu_monitor)}; it must be a GPUMonitor.")
        if not isinstance(monitor, TrainingMonitor | None):
            raise ConfigError(f"argument: monitor is {shown(monitor)}; it must be a TrainingMonitor.")
        self.gpu_monitor = gpu_monitor
        self.monitor = monitor or (TrainingMonitor() if recorded else None)
        log_dir = None if gpu_monitor is None or is_disabled() else gpu_monitor.log_dir
        self._lines = None if log_dir is None else RotatedLines(log_dir, "training_metrics")
        self._waiting: list[dict[str, object]] = []
        self._written_at = time.monotonic()
        self._memory: dict[str, float] = {}
        self._began: float | None = None

    def __getattr__(self, name: str) -> NoReturn:
        """Explains which callback a framework needs, if it was given this one."""
        if name not in FRAMEWORKS:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        framework, module = FRAMEWORKS[name]
        raise ConfigError(
            "TrainingMonitorCallback is for loops that you write yourself. "
            f"For a trainer of {framework}, use: from {module} import StepscopeCallback"
        )

    def on_train_begin(self) -> None:
        """Starts the run and the GPU monitor."""
        if self.gpu_monitor is not None:
            self.gpu_monitor.start()
        if self.monitor is not None:
            self.monitor.start_monitoring()

    def on_step_begin(self) -> None:
        """Starts the clock of a step."""
        self._began = time.perf_counter()

    def on_step_end(
        self,
        step: int,
        epoch: float | None = None,
        loss: Any = None,
        lr: float | None = None,
        grad_norm: Any = None,
        throughput: float | None = None,
    ) -> None:
        """Records the values of a step that are not None."""
        others: dict[str, Any] = {"gradient_norm": grad_norm, "throughput": throughput}
        if self._began is not None:
            others["step_seconds"] = time.perf_counter() - self._began
            self._began = None
        values = {name: value for name, value in others.items() if value is not None}
        if self.monitor is not None:
            self.monitor.log_training_step(
                loss=loss, learning_rate=lr, custom_metrics=values, step=step, epoch=epoch
            )
        if self._lines is not None:
            self._note({"loss": loss, "epoch": epoch, "learning_rate": lr, **values}, step)

    def on_train_end(self) -> dict[str, Any]:
        """Stops both; returns the statistics of the run and of the GPU."""
        self._write()
        summary: dict[str, Any] = {}
        if self.monitor is not None:
            summary["training"] = self.monitor.get_training_stats()
            self.monitor.stop_monitoring()
        if self.gpu_monitor is not None:
            self.gpu_monitor.stop()
            summary["gpu"] = self.gpu_monitor.get_summary()
        return summary

    def _note(self, metrics: dict[str, Any], step: Any) -> None:
        numbers = {name: as_number(value) for name, value in metrics.items()}
        step_number = as_step(step)
        if step_number is not None:  # the monitor of the run warns of any other value
            self._waiting.append(training_line(time.time_ns(), step_number, {**numbers, **self._memory}))
        if time.monotonic() - self._written_at >= WRITE_EVERY_S:
            self._memory = _torch_memory()
            self._write()

    def _write(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._written_at = time.monotonic()
        if self._lines is not None:
            try:
                self._lines.write(waiting)
            except OSError:
                self._lines = None  # the GPU monitor warns of it: both write to one folder


def _torch_memory() -> dict[str, float]:
    """PyTorch's memory on the GPU, if the training uses one; PyTorch is never imported here."""
    torch = sys.modules.get("torch")
    try:
        if torch is None or not torch.cuda.is_initialized():
            return {}
        return {
            "memory_allocated_mb": torch.cuda.memory_allocated() / MIB,
            "memory_reserved_mb": torch.cuda.memory_reserved() / MIB,
        }
    except Exception:  # noqa: BLE001 - a failed GPU raises in the training as well
        return {}
