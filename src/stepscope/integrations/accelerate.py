"""`StepscopeTracker`: records a loop of Accelerate, as one of its trackers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stepscope.errors import MissingExtra
from stepscope.guard import Guard
from stepscope.integrations.callback_monitor import CallbackMonitor

try:
    from accelerate.tracking import GeneralTracker
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in {"accelerate", "torch"}:
        raise
    raise MissingExtra("transformers", "stepscope.integrations.accelerate") from error

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from stepscope.config.find import Source
    from stepscope.recorder.monitor import TrainingMonitor


class StepscopeTracker(GeneralTracker):  # type: ignore[misc]  # it has no types
    """Records what `accelerator.log` gets, and the steps of a model that is watched.

        tracker = StepscopeTracker(run="cnn")
        accelerator = Accelerator(log_with=tracker, gradient_accumulation_steps=4)
        accelerator.init_trackers("vision", config={"learning_rate": 1e-3})
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        tracker.watch(model, optimizer)
        ...
        accelerator.end_training()

    Pass a `TrainingMonitor`, or the arguments of one. Accelerate lets only the main process log;
    `tracker.watch` records the steps of every process.
    """

    name = "stepscope"
    requires_logging_directory = False
    main_process_only = False

    def __init__(  # noqa: PLR0913 - the arguments of a monitor, all by name
        self,
        monitor: TrainingMonitor | None = None,
        *,
        config: Source = None,
        run: str | None = None,
        project: str | None = None,
        directory: str | os.PathLike[str] | None = None,
        strict: bool | None = None,
        params: Any = None,
        resume: bool = False,
    ) -> None:
        names = {"config": config, "run": run, "project": project, "directory": directory}
        self._monitors = CallbackMonitor(monitor, **names, strict=strict, params=params, resume=resume)
        self._guard = Guard(strict=False)
        self._watches = False
        super().__init__()

    @property
    def tracker(self) -> TrainingMonitor:
        """The monitor, which `accelerator.get_tracker("stepscope", unwrap=True)` returns."""
        return self._monitors.current or self._monitors.begin()

    def start(self) -> None:
        """Starts recording; `accelerator.init_trackers` calls it in the main process."""
        self._guard.attempt("Starting the recording", lambda: self.tracker)

    def watch(self, model: Any, optimizer: Any = None, **options: Any) -> None:
        """Times the steps of a prepared model and their phases, as `TrainingMonitor.watch` does.

        Call it in every process, after `accelerator.prepare`: an optimizer step is a step, also where
        `accelerator.accumulate` collects the gradients of several batches.
        """
        self._guard.attempt("Watching the model", self._watch, model, optimizer, options)

    def store_init_configuration(self, values: Mapping[str, Any]) -> None:
        """Records the hyper-parameters that `accelerator.init_trackers` gets as `config`."""
        self._guard.attempt("Recording the configuration", self._log_params, values)

    def log(self, values: Mapping[str, Any], step: int | None = None, **options: Any) -> None:
        """Records numbers of a step; without `step`, of the current one."""
        del options
        self._guard.attempt("Recording what the loop logs", lambda: self.tracker.log(values, step=step))

    def finish(self) -> None:
        """Ends the run; `accelerator.end_training` calls it."""
        self._guard.attempt("Ending the recording", self._finish)

    def _watch(self, model: Any, optimizer: Any, options: dict[str, Any]) -> None:
        self._watches = True
        self.tracker.watch(model, optimizer, **options)

    def _log_params(self, values: Mapping[str, Any]) -> None:
        monitor = self.tracker
        if monitor.identity.rank == 0:
            monitor.log_params(values)

    def _finish(self) -> None:
        monitor = self._monitors.current
        watches, self._watches = self._watches, False
        self._monitors.end()
        if monitor is not None and watches:
            monitor.unwatch()
