"""`StepscopeCallback`: records the trainings of a Transformers `Trainer`."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from transformers.trainer_callback import (  # noqa: TID253 - this module is for programs that use it
    ExportableState,
    TrainerCallback,
)

from stepscope.guard import Guard
from stepscope.integrations.callback_monitor import CallbackMonitor
from stepscope.integrations.transformers.trainer_recorder import TrainerRecorder

if TYPE_CHECKING:
    import os

    from stepscope.config.find import Source
    from stepscope.recorder.monitor import TrainingMonitor

_exported: weakref.ref[StepscopeCallback] | None = None
"""The callback whose state was exported last: a trainer that restores its callbacks replaces this one."""


class StepscopeCallback(TrainerCallback, ExportableState):  # type: ignore[misc]  # they have no types
    """Records each training of a `Trainer` as a segment of a run: steps, phases, what the trainer logs.

        trainer = Trainer(model, args, train_dataset=data, callbacks=[StepscopeCallback(run="bert")])
        trainer.train()

    Pass a `TrainingMonitor`, or the arguments of one. Without either, a monitor that already records in this
    process is used, or else one is opened when the training begins. Steps have the numbers of
    `trainer.state.global_step`. A checkpoint remembers its run: a training that is resumed from it continues
    that run.
    """

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
        _is_restored: bool = False,
    ) -> None:
        original = None if _exported is None or not _is_restored else _exported()
        if original is not None:
            self._set_up(original._monitors)  # noqa: SLF001 - an object of the same class
            return
        names = {"config": config, "run": run, "project": project, "directory": directory}
        self._set_up(CallbackMonitor(monitor, **names, strict=strict, params=params, resume=resume))

    def _set_up(self, monitors: CallbackMonitor) -> None:
        self._monitors = monitors
        self.checkpoint_run: dict[str, Any] | None = None
        """The run that a checkpoint belongs to, as the trainer stores it."""
        self._trainer = TrainerRecorder(monitors)
        self._guard = Guard(strict=False)

    @property
    def monitor(self) -> TrainingMonitor | None:
        """The monitor of the current or the last training; None before the first."""
        return self._monitors.newest

    def state(self) -> dict[str, Any]:
        """What the trainer stores with a checkpoint: the run that it belongs to."""
        global _exported  # noqa: PLW0603 - a trainer creates the callback anew, without this one
        _exported = weakref.ref(self)
        return {
            "args": {"_is_restored": True},
            "attributes": {"checkpoint_run": self._trainer.checkpoint_run},
        }

    def __getstate__(self) -> CallbackMonitor:
        """A pickled callback has the arguments, and opens a run of its own."""
        return self._monitors.copy()

    def __setstate__(self, monitors: CallbackMonitor) -> None:
        self._set_up(monitors)

    def __deepcopy__(self, memo: dict[int, Any]) -> StepscopeCallback:
        """A copied callback has the arguments and the user's monitor, not a copy of that."""
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        copied.__setstate__(self._monitors.copy())
        return copied

    def on_train_begin(self, args: Any, state: Any, control: Any, **objects: Any) -> None:
        """Starts recording, and watches the model and its optimizer."""
        del control
        stored = getattr(state, "stateful_callbacks", None) or {}
        exported = stored.get(type(self).__name__) if isinstance(stored, dict) else None
        exported = exported[0] if isinstance(exported, list) and exported else exported
        attributes = exported.get("attributes") if isinstance(exported, dict) else None
        checkpoint_run = attributes.get("checkpoint_run") if isinstance(attributes, dict) else None
        model, optimizer = objects.get("model"), objects.get("optimizer")
        self._guard.attempt(
            "Starting the recording",
            self._trainer.begin_training,
            *(args, state, model, optimizer, checkpoint_run),
        )
        self._guard.attempt("Recording hyper-parameters", self._trainer.describe_training, args, state, model)
        if isinstance(exported, dict) and isinstance(stored, dict):
            exported.update(self.state())  # older versions export it only before the training begins

    def on_substep_end(self, args: Any, state: Any, control: Any, **objects: Any) -> None:
        """Counts a further batch of a step."""
        del args, state, control, objects
        self._guard.attempt("Counting a batch", self._trainer.begin_batch)

    def on_step_end(self, args: Any, state: Any, control: Any, **objects: Any) -> None:
        """Gives the step the trainer's number."""
        del args, objects
        self._guard.attempt("Counting a step", self._trainer.end_step, state, control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **objects: Any) -> None:
        """Starts the time of a checkpoint, if one is saved after the epoch."""
        del args, objects
        self._guard.attempt("Timing a checkpoint", self._trainer.follow_saving, state, control)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **objects: Any) -> None:
        """Records the values that the trainer logs."""
        del objects
        self._guard.attempt("Recording what the trainer logs", self._trainer.log, args, state, logs)
        self._guard.attempt("Timing a checkpoint", self._trainer.follow_saving, state, control)

    def on_prediction_step(self, args: Any, state: Any, control: Any, **objects: Any) -> None:
        """Starts recording an evaluation outside a training."""
        del control, objects
        self._guard.attempt("Starting the recording", self._trainer.begin_evaluation, args, state)

    def on_evaluate(self, args: Any, state: Any, control: Any, **objects: Any) -> None:
        """Ends an evaluation."""
        del args, objects
        self._guard.attempt("Timing an evaluation", self._trainer.end_evaluation, state)
        self._guard.attempt("Timing a checkpoint", self._trainer.follow_saving, state, control)

    def on_predict(self, args: Any, state: Any, control: Any, metrics: Any = None, **objects: Any) -> None:
        """Records the metrics of predictions, which the trainer does not log."""
        del control, objects
        self._guard.attempt("Recording the metrics of predictions", self._trainer.log, args, state, metrics)
        self._guard.attempt("Timing an evaluation", self._trainer.end_evaluation, state)

    def on_save(self, args: Any, state: Any, control: Any, **objects: Any) -> None:
        """Ends the time of a checkpoint."""
        del args, state, control, objects
        self._guard.attempt("Timing a checkpoint", self._trainer.end_saving)

    def on_train_end(self, args: Any, state: Any, control: Any, **objects: Any) -> None:
        """Ends the segment; when it returns, every point is in the store."""
        del args, state, control, objects
        self._guard.attempt("Ending the recording", self._trainer.end_training)
