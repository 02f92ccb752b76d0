"""`StepscopeLogger`: a logger of Lightning that records into a run."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from stepscope.errors import ConfigError
from stepscope.guard import Guard, shown
from stepscope.integrations.lightning.framework import LightningObject, packages_in_use
from stepscope.recorder.identity.params import PlainParams
from stepscope.recorder.monitor import TrainingMonitor
from stepscope.recorder.monitor_settings import check_arguments

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from stepscope.config.find import Source


class StepscopeLogger(LightningObject):
    """Records the metrics and hyper-parameters that a trainer logs, from its first rank.

        trainer = Trainer(logger=StepscopeLogger(run="mnist"))

    The arguments are those of `TrainingMonitor`. It records no phases; with a `StepscopeCallback` in the same
    trainer, both record into one run.
    """

    lightning_base = ("loggers", "Logger")

    def __init__(  # noqa: PLR0913 - those of a monitor, by name
        self,
        monitor: TrainingMonitor | None = None,
        *,
        config: Source = None,
        run: str | None = None,
        project: str | None = None,
        directory: str | os.PathLike[str] | None = None,
        params: Any = None,
        resume: bool = False,
    ) -> None:
        if not isinstance(monitor, TrainingMonitor | None):
            raise ConfigError(f"argument: monitor is {shown(monitor)}; it must be a TrainingMonitor.")
        options = {"run": run, "project": project, "directory": directory, "params": params, "resume": resume}
        check_arguments(config, **options)
        self._options = {"config": config, **options}
        self._guard = Guard(strict=False)
        self.monitor = monitor
        """Records the metrics; None before it is needed."""
        self.is_part_of_callback = False
        """Whether a callback of the trainer starts and stops the monitor, and records steps and losses."""
        self._was_recording = monitor is not None and monitor.is_recording

    def state_to_pickle(self) -> dict[str, Any]:
        """Leaves out what belongs to this process: a rank that Lightning spawns opens its own recording."""
        state = dict(vars(self))
        if self.monitor is not None and not self.monitor.is_recording:
            state["monitor"] = None
            state["_options"] = {**self._options, "run": self.monitor.identity.name, "resume": False}
        return state

    @property
    def experiment(self) -> TrainingMonitor:
        """The monitor, for calls of its own methods."""
        if self.monitor is None:
            self.monitor = TrainingMonitor(**self._options)
        return self.monitor

    @property
    def name(self) -> str:
        """The project of the run."""
        return self.experiment.identity.project

    @property
    def version(self) -> str:
        """The name of the run."""
        return self.experiment.identity.name

    @property
    def save_dir(self) -> str:
        """The folder with the store; Lightning saves checkpoints there, under project and run."""
        return str(self.experiment.directory.parent)

    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Records metrics of a step."""
        self._guard.attempt("StepscopeLogger.log_metrics", self._log_metrics, dict(metrics), step)

    def _log_metrics(self, metrics: dict[str, Any], step: int | None) -> None:
        monitor = self._recording_monitor()
        if monitor is None:
            return
        if not self.is_part_of_callback:
            monitor.log(metrics, step)
            return
        from stepscope.integrations.lightning.logged_metrics import OWN_KEYS, record_at

        others = {name: value for name, value in metrics.items() if name not in OWN_KEYS}
        record_at(monitor, others, step)

    def log_hyperparams(self, params: Any, *_: Any, **__: Any) -> None:
        """Records hyper-parameters: a mapping or a namespace; values of other types as text."""
        self._guard.attempt("StepscopeLogger.log_hyperparams", self._log_hyperparams, params)

    def _log_hyperparams(self, params: Any) -> None:
        monitor = self._recording_monitor()
        if monitor is not None and params is not None:
            monitor.log_params(PlainParams(params).nested)

    def finalize(self, status: str) -> None:
        """Ends the recording, with the exception that is being handled if the training has failed."""
        self._guard.attempt("StepscopeLogger.finalize", self._finalize, status)

    def _finalize(self, status: str) -> None:
        monitor = self.monitor
        if monitor is None or self.is_part_of_callback or self._was_recording or not monitor.is_recording:
            return
        error = sys.exc_info()[1]
        if status == "failed" and error is not None:
            monitor.__exit__(type(error), error, error.__traceback__)
        else:
            monitor.stop_monitoring("failed" if status == "failed" else "finished")

    def _recording_monitor(self) -> TrainingMonitor | None:
        """The monitor, started if necessary; None in all ranks but the first."""
        if _rank():
            return None
        monitor = self.experiment
        if not monitor.is_recording:
            monitor.start_monitoring()
        return monitor


def _rank() -> int:
    """The rank of this process, as Lightning knows it."""
    for package in packages_in_use("StepscopeLogger"):
        rank_zero = importlib.import_module(f"{package}.utilities.rank_zero")
        rank = getattr(rank_zero.rank_zero_only, "rank", None)
        if rank:
            return int(rank)
    return 0
