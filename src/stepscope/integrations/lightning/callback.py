"""`StepscopeCallback`: records everything about the fits of a Lightning trainer."""

from __future__ import annotations

import os
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from stepscope import procfs
from stepscope.errors import ConfigError
from stepscope.guard import shown
from stepscope.integrations.lightning.fit_clock import clock_of
from stepscope.integrations.lightning.framework import LightningCallback, guarded
from stepscope.integrations.lightning.logged_metrics import LoggedMetrics, StepLoss
from stepscope.integrations.lightning.logger import StepscopeLogger
from stepscope.integrations.lightning.trainer_facts import batches_stepped, params_of, total_steps_of
from stepscope.recorder.identity import rank_detection
from stepscope.recorder.monitor import TrainingMonitor
from stepscope.recorder.monitor_settings import check_arguments
from stepscope.recorder.values import learning_rate_of
from stepscope.schema.keys import EVAL_GAP_SECONDS, phase_key
from stepscope.schema.total_steps import TOTAL_STEPS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepscope.config.find import Source
    from stepscope.integrations.lightning.fit_clock import FitClock

HOOK_CALLS = 20
"""What the hooks of this callback cost in a step, in hook calls: the time that they add to a step on a CPU
(`python -m benchmarks.step_overhead --with lightning,lightning_callback`), divided by that of a call."""

EVALUATIONS = ("validate", "test")
"""Stages of a trainer, besides `fit`, that are recorded."""


class StepscopeCallback(LightningCallback):
    """Records the fits of a trainer: steps, phases, epochs, losses, logged metrics, how they ended.

        trainer = Trainer(callbacks=[StepscopeCallback(run="mnist")])
        trainer.fit(module, loader)

    Without `monitor`, one is created with the other arguments, which are those of `TrainingMonitor`. Each fit
    is a segment of the same run. A fit from a checkpoint continues at its step; if a run has the given name,
    that run continues. A monitor that already records stays open after the fit. With `baseline`, a file, the
    figures of the run are written there, or compared with those that are there.
    """

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
        baseline: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__()
        options = {"run": run, "project": project, "directory": directory, "params": params, "resume": resume}
        if not isinstance(monitor, TrainingMonitor | None):
            raise ConfigError(f"argument: monitor is {shown(monitor)}; it must be a TrainingMonitor.")
        given = [name for name, value in {"config": config, **options}.items() if value not in (None, False)]
        if monitor is not None and given:
            raise ConfigError(
                f"argument: {given[0]} is given with a monitor. Pass it to the monitor instead."
            )
        if not isinstance(baseline, str | os.PathLike | None):
            raise ConfigError(f"argument: baseline is {shown(baseline)}; it must be the path of a file.")
        if monitor is None:
            check_arguments(config, **options)
        self.monitor = monitor
        """Records the fits; None before the first one, unless it was passed."""
        self._options = {"config": config, **options}
        self._is_without_options = not given
        self._baseline = baseline
        self._current: TrainingMonitor | None = None
        """The monitor, while this callback records with it."""
        self._opening_since_ns: int | None = None
        """When a stage began whose recording is not open yet."""
        self._owns_recording = False
        self._metrics: LoggedMetrics | None = None
        self._loss = StepLoss()
        self._clock: FitClock | None = None
        self._is_automatic = self._has_plain_backward = True
        self._epoch = 0
        self._optimizer: Any = None
        self._rate: Any = None
        self._evaluating_since_ns: int | None = None

    def state_to_pickle(self) -> dict[str, Any]:
        """Leaves out what belongs to this process: a rank that Lightning spawns opens its own recording."""
        state = dict(vars(self))
        if self.monitor is not None and not self.monitor.is_recording:
            state["monitor"] = None
            state["_options"] = {**self._options, "run": self.monitor.identity.name, "resume": False}
        state.update(
            _current=None, _opening_since_ns=None, _metrics=None, _loss=StepLoss(), _evaluating_since_ns=None,
            _clock=None, _optimizer=None, _rate=None,
        )  # fmt: skip
        return state

    @guarded
    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Opens the recording, or notes when a fit begins."""
        first = next(callback for callback in trainer.callbacks if isinstance(callback, StepscopeCallback))
        if stage not in ("fit", *EVALUATIONS) or first is not self:  # one run, even with two callbacks
            return
        self._opening_since_ns = monotonic_ns()
        report_rank(trainer)
        if stage != "fit":
            self._open(trainer)

    @guarded
    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Opens the recording, once it is known whether the fit resumes from a checkpoint."""
        if not trainer.strategy.restore_checkpoint_after_setup:
            self._open(trainer)

    @guarded
    def on_sanity_check_start(self, trainer: Any, pl_module: Any) -> None:
        """Opens the recording, for strategies that load a checkpoint late."""
        self._open(trainer)

    def _open(self, trainer: Any) -> None:
        """Opens the recording unless it is open, or another callback of the trainer has one."""
        since_ns, self._opening_since_ns = self._opening_since_ns, None
        if since_ns is None:
            return
        loggers = [logger for logger in trainer.loggers if isinstance(logger, StepscopeLogger)]
        if self.monitor is None and self._is_without_options:
            self.monitor = next((logger.monitor for logger in loggers if logger.monitor is not None), None)
        if self.monitor is None:
            options = dict(self._options)
            is_continued = (
                bool(trainer.ckpt_path) and options["run"] is not None and trainer.state.fn == "fit"
            )
            options["resume"] = options["resume"] or is_continued
            self.monitor = TrainingMonitor(**options)
        self._owns_recording = not self.monitor.is_recording
        self.monitor.start_monitoring()
        self._current = self.monitor
        self._metrics = LoggedMetrics(self.monitor, is_off=bool(loggers) or not trainer.is_global_zero)
        for logger in loggers:
            if logger.monitor is None or logger.monitor is self.monitor or not logger.monitor.is_recording:
                logger.monitor, logger.is_part_of_callback = self.monitor, True

    @guarded
    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Watches the model and its optimizers, from the step at which the trainer is."""
        self._open(trainer)
        monitor = self._current
        if monitor is None:
            return
        if trainer.ckpt_path or batches_stepped(trainer) > monitor.timer.step:
            monitor.timer.step = batches_stepped(trainer)
        if trainer.is_global_zero:
            monitor.log_params(params_of(trainer, pl_module))
            total = total_steps_of(trainer)
            if total is not None:
                monitor.own_event(TOTAL_STEPS, **{TOTAL_STEPS: total})
        monitor.watch(trainer.model or pl_module, list(trainer.optimizers) or None)
        monitor.overhead.count_hooks(HOOK_CALLS)
        self._clock = clock = clock_of(trainer)
        clock.monitor, clock.before_end = monitor, self._record_step
        self._begin_epoch(trainer)

    @guarded
    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Ends the recording."""
        monitor = self._current
        if monitor is None or stage not in ("fit", *EVALUATIONS):
            return
        if self._metrics is not None:
            self._metrics.record_left(trainer)
        self._leave(trainer)
        if self._owns_recording:
            monitor.stop_monitoring()
            if self._baseline is not None and stage == "fit" and trainer.is_global_zero:
                self._report_baseline(pl_module, monitor)

    @guarded
    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Ends the recording with the reason."""
        self._open(trainer)
        monitor = self._current
        if monitor is None:
            return
        self._leave(trainer)
        if self._owns_recording:
            monitor.__exit__(type(exception), exception, exception.__traceback__)

    def _leave(self, trainer: Any) -> None:
        clock = clock_of(trainer)
        watching = clock.monitor
        clock.leave()
        if watching is not None:
            watching.unwatch()
        self._current, self._metrics, self._loss = None, None, StepLoss()
        self._clock = self._optimizer = None

    def _report_baseline(self, pl_module: Any, monitor: TrainingMonitor) -> None:
        from stepscope.integrations.lightning.baseline import report_baseline  # lazy: it reads the store

        pl_module.print(report_baseline(monitor.directory, monitor.run_id, os.fspath(self._baseline or "")))

    @guarded
    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Begins a pass over the data."""
        if self._metrics is not None:
            self._metrics.record_left(trainer)
        clock_of(trainer).begin_epoch(trainer)
        self._begin_epoch(trainer)

    def _begin_epoch(self, trainer: Any) -> None:
        """Reads what cannot change within an epoch: each attribute of a trainer takes a microsecond."""
        self._is_automatic = trainer.lightning_module.automatic_optimization
        self._epoch = trainer.current_epoch
        optimizers = trainer.optimizers
        self._optimizer = optimizers[0] if optimizers else None
        # Of several optimizers' losses none is that of the step, and a scaler's factor is on the GPU.
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        self._has_plain_backward = len(optimizers) == 1 and scaler is None

    @guarded
    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Notes the batch, and the learning rate before a scheduler changes it."""
        if self._clock is not None:
            self._clock.begin_batch(trainer, batch)
            self._rate = None if self._optimizer is None else learning_rate_of(self._optimizer)

    @guarded
    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Any) -> None:
        """Notes the loss of a module that updates itself, which need not return it."""
        if not self._is_automatic and self._has_plain_backward:
            self._loss.add_backward(loss)

    @guarded
    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Ends the batch, and the step if an optimizer has stepped."""
        if self._clock is not None:
            self._clock.end_batch(trainer, outputs)

    def _record_step(self, trainer: Any, outputs: Any, *, ends_step: bool) -> None:
        """Records loss, learning rate and logged metrics of a step when its last batch ends."""
        monitor, metrics = self._current, self._metrics
        if monitor is None or metrics is None:
            return
        divided_by = trainer.accumulate_grad_batches if self._is_automatic else 1
        loss = self._loss.of_step(outputs, divided_by, ends_step=ends_step)
        if not ends_step:
            return
        if loss is not None:
            monitor.log_loss(loss, self._rate, self._epoch)
        else:
            monitor.log({"epoch": self._epoch})
        if metrics.is_due(trainer, monitor.timer.step):
            metrics.record(trainer, monitor.timer.step)

    @guarded
    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Ends a pass over the data."""
        clock_of(trainer).end_epoch()

    @guarded
    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Mapping[str, Any]) -> None:
        """Records that a checkpoint is written; its time is a phase of the step or of the gap it is in."""
        if self._current is not None:
            self._current.event("checkpoint", epoch=trainer.current_epoch, global_step=trainer.global_step)

    @guarded
    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Notes when an evaluation begins."""
        self._begin_evaluation(trainer)

    @guarded
    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Records the metrics of a validation."""
        self._end_evaluation(trainer, "validate")

    @guarded
    def on_test_start(self, trainer: Any, pl_module: Any) -> None:
        """Notes when an evaluation begins."""
        self._begin_evaluation(trainer)

    @guarded
    def on_test_end(self, trainer: Any, pl_module: Any) -> None:
        """Records the metrics of a test."""
        self._end_evaluation(trainer, "test")

    def _begin_evaluation(self, trainer: Any) -> None:
        self._evaluating_since_ns = monotonic_ns()
        clock_of(trainer).begin_evaluation()

    def _end_evaluation(self, trainer: Any, stage: str) -> None:
        monitor, metrics, since_ns = self._current, self._metrics, self._evaluating_since_ns
        clock_of(trainer).end_evaluation()
        if monitor is None or metrics is None or since_ns is None or trainer.sanity_checking:
            return
        took_s = (monotonic_ns() - since_ns) * 1e-9
        step = max(monitor.timer.step - 1, 0)
        metrics.record(trainer, step)
        if trainer.state.fn == "fit":
            return  # the monitor has timed it: it watches the model
        monitor.record_late({phase_key("eval"): took_s, EVAL_GAP_SECONDS: took_s}, step)
        monitor.event("evaluation", stage=stage, seconds=took_s, step=step)


def report_rank(trainer: Any) -> None:
    """Tells the recorder which rank this process is: Lightning sets no variable that says it."""
    if trainer.world_size <= 1:
        rank_detection.report_rank(0, 1, "")
        return
    if rank_detection.started_by() is not None:
        # The ranks are started anew for each fit, by a process that records nothing. All have this callback.
        launch = f"lightning {trainer.strategy.broadcast(os.urandom(8).hex())}"
    else:
        pid = os.getpid() if trainer.local_rank == 0 else os.getppid()
        launch = f"lightning {pid} {procfs.start_ticks(pid)}"
    rank_detection.report_rank(trainer.global_rank, trainer.world_size, launch)
