"""`GPUMonitoringCallback`: adds the figures of a GPU to the logs of a Transformers `Trainer`."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from transformers.trainer_callback import (  # noqa: TID253 - this module is for programs that use it
    TrainerCallback,
)

from stepscope.errors import ConfigError
from stepscope.facade.gpu_monitor import GPUMetrics, GPUMonitor
from stepscope.guard import Guard, shown
from stepscope.recorder.monitor import TrainingMonitor
from stepscope.recorder.recording import monitors

if TYPE_CHECKING:
    from collections.abc import MutableMapping

FIGURES = {
    f"gpu_{field.name}": field.name
    for field in fields(GPUMetrics)
    if field.name not in ("timestamp", "gpu_index")
}
"""The fields of a reading, by the names under which they are logged."""

recording: dict[int, TrainingMonitor] = {}
"""The monitor of each trainer that is recorded now, by the id of its arguments."""


class GPUMonitoringCallback(TrainerCallback):  # type: ignore[misc]  # it has no types
    """Logs the figures of a `GPUMonitor` every `log_interval` steps.

        gpu = stepscope.GPUMonitor(gpu_index=0)
        trainer = Trainer(model, args, train_dataset=data, callbacks=[GPUMonitoringCallback(gpu)])

    They are entries of `trainer.state.log_history`, part of the lines that the trainer prints, and series of
    the run: that of `monitor`, or else the one that records in this process. The GPU monitor runs from the
    start of the training to its end. Without a GPU it logs one line that says so, and nothing is added.
    """

    def __init__(
        self, gpu_monitor: GPUMonitor, log_interval: int = 10, monitor: TrainingMonitor | None = None
    ) -> None:
        if not isinstance(gpu_monitor, GPUMonitor):
            raise ConfigError(f"argument: gpu_monitor is {shown(gpu_monitor)}; it must be a GPUMonitor.")
        if not isinstance(log_interval, int) or isinstance(log_interval, bool) or log_interval < 1:
            raise ConfigError(
                f"argument: log_interval is {shown(log_interval)}; it must be a number of steps, 1 or more."
            )
        if not isinstance(monitor, TrainingMonitor | None):
            raise ConfigError(f"argument: monitor is {shown(monitor)}; it must be a TrainingMonitor.")
        self.gpu_monitor, self.log_interval = gpu_monitor, log_interval
        self._monitor = monitor
        self._guard = Guard(strict=False)

    def __deepcopy__(self, memo: dict[int, Any]) -> GPUMonitoringCallback:
        """A copied callback has the same GPU monitor: it reads the same GPU."""
        copied = GPUMonitoringCallback(self.gpu_monitor, self.log_interval, self._monitor)
        memo[id(self)] = copied
        return copied

    def on_train_begin(self, args: Any, state: Any, control: Any, **objects: Any) -> None:
        """Starts the GPU monitor."""
        del args, state, control, objects
        self._guard.attempt("Starting the GPU monitor", self.gpu_monitor.start)

    def on_step_end(self, args: Any, state: Any, control: Any, **objects: Any) -> None:
        """Logs the newest figures, every `log_interval` steps."""
        del control, objects
        if state.global_step % self.log_interval == 0:
            self._guard.attempt("Logging the figures of the GPU", self._log, args, state)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **objects: Any) -> None:
        """Adds the newest figures to what the trainer prints after a number of training steps."""
        del args, state, control, objects
        if isinstance(logs, dict) and "loss" in logs:
            self._guard.attempt("Logging the figures of the GPU", self._add_to, logs)

    def on_train_end(self, args: Any, state: Any, control: Any, **objects: Any) -> None:
        """Stops the GPU monitor."""
        del args, state, control, objects
        self._guard.attempt("Stopping the GPU monitor", self.gpu_monitor.stop)

    def _figures(self) -> dict[str, float]:
        """The newest figures of the GPU; none without a GPU."""
        newest = self.gpu_monitor.get_current_metrics()
        readings = ((name, getattr(newest, field, None)) for name, field in FIGURES.items())
        return {name: value for name, value in readings if value is not None}

    def _add_to(self, logs: MutableMapping[str, Any]) -> None:
        for name, value in self._figures().items():
            logs.setdefault(name, value)

    def _log(self, args: Any, state: Any) -> None:
        figures = self._figures()
        if not figures:
            return
        state.log_history.append({**figures, "epoch": state.epoch, "step": state.global_step})
        monitor = (
            self._monitor or recording.get(id(args)) or (next(iter(monitors)) if len(monitors) == 1 else None)
        )
        if monitor is not None:
            monitor.record_now(figures)
