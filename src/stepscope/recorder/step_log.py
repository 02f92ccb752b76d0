"""Records the log calls of a training and counts its steps."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from stepscope.errors import RecorderError, ValuesOnDevice
from stepscope.guard import shown
from stepscope.journal.packing import unpacked_rows
from stepscope.recorder.stats import StepStats
from stepscope.recorder.values import LARGEST_STEP, as_number, as_step, is_on_device, learning_rate_of
from stepscope.schema.keys import STEP_SECONDS
from stepscope.schema.record import TrainingMetrics
from stepscope.steps.step_timer import StepTimer

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepscope.guard import Guard
    from stepscope.recorder.recording import Recording

MAX_FROM_DEVICE = 4096
"""Maximum elements of a tensor on a GPU that are read without waiting for it."""

_METRICS = frozenset(field.name for field in fields(TrainingMetrics))
_NUMBERS = frozenset({int, float})
_ON_DEVICE = ValuesOnDevice("the loss is on a GPU")


class StepLog(ABC):
    """The part of a monitor that is called once a step, and must be quick."""

    _guard: Guard
    _append: Callable[..., None]
    """Appends a row to the journal, after starting the recording if necessary."""
    _recording: Recording | None

    def __init__(self) -> None:
        self.timer = StepTimer()
        """Times steps, and has the number of the current one."""
        self._epoch: float = 0
        self._epochs_begun = 0
        self._stats = StepStats()
        self._follows_late_losses = False
        self._ends_by_log: Callable[[], bool] | None = None
        """Returns whether a call of `log` ends a step, while a model without an optimizer is watched."""
        self._resumed_at: int | None = None
        """The step after the last one of a resumed run, until a step has been logged."""
        self._considers_models = True
        """Whether it is still undecided if a model passed with each step should be watched."""
        self._first_keys: set[Any] | None = None
        """Keys a loop logs before its first optimizer step; None if there are none, or no watched model."""

    @abstractmethod
    def _consider_model(self, model: object, optimizer: object) -> None:
        """Watches a model that is passed with each step, once it is known to be trained here."""

    @abstractmethod
    def open_recording(self) -> Recording | None:
        """The current recording, started by this call if necessary; None after the end."""

    def log(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Records numbers of a step.

        Without `step`, each call is one step; while `batches` or a watched optimizer count steps, it belongs
        to the current one. A passed `step` becomes the current one, unless it is lower and the call is
        outside `batches`, as for the epoch of a validation. All values are kept.
        """
        try:
            timer = self.timer
            if step is None:
                step = timer.step if self._first_keys is None else self._step_of_metrics(metrics)
            elif type(step) is not int:
                step = self._checked_step(step)
            self._append(metrics, step)
            if timer.in_batches or step > timer.step - timer.stride or self._goes_back():
                timer.step = step + timer.stride
                if timer.is_over and not timer.in_batches:
                    timer.is_over = False  # for a loop that counts from 1, the next step has this number
                if self._ends_by_log and timer.stride and self._ends_by_log():
                    timer.end_logged()
        except Exception as error:  # noqa: BLE001 - a user's value may raise anything, training goes on
            self._log_any_values(metrics, step, error)

    def log_training_step(  # noqa: C901, PLR0912, PLR0913 - the names people know, and no calls that cost
        self,
        model: object = None,
        optimizer: object = None,
        loss: Any = None,
        accuracy: Any = None,
        learning_rate: Any = None,
        custom_metrics: Mapping[str, Any] | None = None,
        *,
        step: int | None = None,
        epoch: float | None = None,
    ) -> None:
        """Records a step; step and epoch are counted if not passed, the rate is read from the optimizer.

        Without an optimizer, the watched one is used. A model that is passed is watched from the second step
        on, unless one is already watched.
        """
        if loss is None and model is not None:
            model, loss = self._model_or_loss(model)
        if epoch is not None:
            self._epoch = epoch if type(epoch) in _NUMBERS else self._number_of_epoch(epoch)
        stepped = self.timer.last_optimizer if optimizer is None else optimizer
        if learning_rate is None and stepped is not None:
            try:
                learning_rate = learning_rate_of(stepped)
            except Exception as error:  # noqa: BLE001 - users may pass anything, training goes on
                self._complain_of_optimizer(stepped, error)
        is_late = False
        if type(loss) is not float:
            is_late = is_on_device(loss)
            number = None if is_late else as_number(loss)
            loss = loss if number is None else number
        # A loss on a GPU is counted now, and added to the statistics once it has been copied.
        self._stats.add(loss if type(loss) is float else None)
        metrics = {"loss": loss, "epoch": self._epoch}
        if accuracy is not None:
            metrics["accuracy"] = accuracy
        if learning_rate is not None:
            metrics["learning_rate"] = learning_rate
        if custom_metrics is not None:
            try:
                metrics.update(custom_metrics)
            except Exception as error:  # noqa: BLE001 - a mapping of the user's own may raise anything
                self._add_until_it_raises(metrics, custom_metrics, error)
        if is_late and self.open_recording() is not None:
            self._follows_late_losses = True
            self._log_any_values(
                metrics, self._step_of_metrics(metrics) if step is None else step, _ON_DEVICE
            )
        else:
            self.log(metrics, step)
        if step is not None and self.timer.stride and (number := as_step(step)) is not None:
            self.timer.step = number + 1  # also a lower one: the loop has gone back to a checkpoint
        if self._ends_by_log is None and self.timer.stride and STEP_SECONDS not in metrics:
            self.timer.end_logged()
        if model is not None and self._considers_models:
            self._consider_model(model, optimizer)

    def _model_or_loss(self, first: object) -> tuple[object, Any]:
        """Takes a number in the place of the model for the loss, and says so once."""
        if as_number(first) is None and not is_on_device(first):
            return first, None
        self._guard.complain(
            "first argument",
            f"model is {shown(first)}, a number; it is recorded as the loss. "
            "Pass it by name: log_training_step(loss=...).",
        )
        return None, first

    def log_loss(self, loss: Any, learning_rate: Any, epoch: float | None = None) -> None:
        """Records the loss of the current step, for trainers of which the optimizer counts the steps.

        As `log_training_step` does, in fewer calls: after a step the CPU caches hold the training's data, and
        each call of a Python function takes ten times as long as in a tight loop.
        """
        number = loss
        if type(loss) is not float and getattr(loss, "is_cpu", False) and loss.numel() == 1:
            number = loss.item()
        if type(number) is not float or type(learning_rate) not in _NUMBERS or self._first_keys is not None:
            self.log_training_step(loss=loss, learning_rate=learning_rate, epoch=epoch)
            return
        if epoch is not None:
            self._epoch = epoch
        self._stats.add(number)
        metrics = {"loss": number, "epoch": self._epoch, "learning_rate": learning_rate}
        step = self.timer.step
        try:
            self._append(metrics, step)
        except Exception as error:  # noqa: BLE001 - training must continue on any failure
            self._log_any_values(metrics, step, error, counts=False)

    def log_training_metrics(self, metrics: TrainingMetrics) -> None:
        """Records the metrics of a step from one object."""
        try:
            fields_by_name = {} if isinstance(metrics, type) else dict(_fields_of(metrics))
        except Exception:  # noqa: BLE001 - users may pass anything, training goes on
            fields_by_name = {}
        if _METRICS.isdisjoint(fields_by_name):
            self._guard.complain(
                "training metrics",
                f"metrics is {shown(metrics)}; expected a TrainingMetrics. Nothing of the call was recorded.",
            )
            return
        custom = fields_by_name.pop("custom_metrics", None)
        step, loss, epoch = (fields_by_name.pop(name, None) for name in ("step", "loss", "epoch"))
        others = {name: value for name, value in fields_by_name.items() if value is not None}
        try:
            others.update(() if custom is None else custom)
        except Exception as error:  # noqa: BLE001 - a mapping of the user's own may raise anything
            self._add_until_it_raises(others, custom, error)
        self.log_training_step(loss=loss, custom_metrics=others, step=step, epoch=epoch)

    def record_metrics(self, step: int, loss: Any, learning_rate: Any, batch_size: Any) -> None:
        """Records loss, learning rate and batch size of a step."""
        self.log_training_step(
            loss=loss,
            learning_rate=learning_rate,
            custom_metrics={"batch_size": batch_size},
            step=step,
        )

    def get_training_stats(self) -> dict[str, Any]:
        """Current, average, minimum and maximum loss, steps and seconds, of the steps logged so far."""
        return self._stats.as_dict()

    def _step_of_metrics(self, metrics: Mapping[str, Any]) -> int:
        """The step that logged metrics belong to, while an optimizer or batches count steps.

        A loop may log before its optimizer steps, after it, or both. The keys logged before the first
        optimizer step start a new step each time they are logged; all other keys belong to the current one.
        """
        timer, first_keys = self.timer, self._first_keys
        if first_keys is None or timer.in_batches:
            return timer.step
        if timer.stride:
            is_further_call = bool(first_keys) and first_keys.isdisjoint(metrics)
            first_keys.update(metrics)
            return timer.step - is_further_call
        if not first_keys:
            self._first_keys = None
        elif timer.is_over and not first_keys.isdisjoint(metrics):
            timer.step += 1
            timer.is_over = False
        return timer.step

    def _last_step(self) -> int:
        """Between two calls of log(), the last logged step."""
        return max(self.timer.step - self.timer.stride, 0)

    def current_step(self) -> int:
        """The number of the current step, which an optimizer or a batch will end."""
        return self.timer.step + self.timer.is_over

    def begin_epoch(self) -> None:
        """Counts a pass over the data; `batches` calls it."""
        self._epoch = self._epochs_begun
        self._epochs_begun += 1

    def begin_pass(self, number: int) -> None:
        """Sets the epoch to the number of a pass over a loader (from 0), unless `batches` counts them."""
        if not self._epochs_begun:
            self._epoch = number

    def record_now(self, metrics: Mapping[str, Any]) -> None:
        """Records values of the current step without counting a step."""
        try:
            self._append(metrics, self.timer.step)
        except Exception as error:  # noqa: BLE001 - training must continue on any failure
            self._log_any_values(metrics, self.timer.step, error, counts=False)

    def record_late(self, metrics: Mapping[str, Any], step: int, at_ns: int | None = None) -> None:
        """Records values of an earlier step and time."""
        try:
            self._append(metrics, step, at_ns)
        except Exception as error:  # noqa: BLE001 - training must continue on any failure
            message = f"Figures of step {shown(step)} were not recorded: {shown(error)}"
            self._guard.complain("late", message, error)

    def record_many(self, keys: tuple[str, ...], rows: bytes) -> None:
        """Records packed rows of earlier times: each has its time, its step, and a value for each key."""
        recording = self._recording
        try:
            if recording is not None and recording.alerts is None:
                recording.writer.append_rows(keys, rows)
                return
            for at_ns, step, *values in unpacked_rows(rows, len(keys)):
                self.record_late(dict(zip(keys, values, strict=True)), step, at_ns)
        except RecorderError:
            raise
        except Exception as error:  # noqa: BLE001 - training must continue on any failure
            self._guard.complain("late", f"Times of steps were not recorded: {shown(error)}", error)

    def _follow_late_loss(self, metrics: Mapping[Any, Any]) -> None:
        if self._follows_late_losses and "loss" in metrics:
            self._stats.follow(metrics["loss"])

    def _checked_step(self, step: Any) -> int:
        """The number of a step that was not passed as an int."""
        step_number = as_step(step)
        if step_number is None:
            self._guard.complain(
                "step", f"step is {shown(step)}; expected a whole number. The counted step is used instead."
            )
            return min(self.timer.step, LARGEST_STEP)
        return step_number

    def _number_of_epoch(self, epoch: Any) -> float:
        number = as_number(epoch)
        if number is None:
            message = f"epoch is {shown(epoch)}; expected a number. The rest of the call was recorded."
            self._guard.complain("epoch", message)
            return self._epoch
        return number

    def _complain_of_optimizer(self, optimizer: object, error: Exception) -> None:
        self._guard.complain(
            "optimizer",
            f"optimizer is {shown(optimizer)}; its learning rate could not be read ({shown(error)}). "
            "Give it as learning_rate=...; the rest of the call was recorded.",
            error,
        )

    def _add_until_it_raises(self, metrics: dict[Any, Any], custom: Any, error: Exception) -> None:
        """Keeps the values of a mapping up to the one that raises."""
        with contextlib.suppress(Exception):
            if isinstance(custom, Mapping):
                for key in custom:
                    metrics[key] = custom[key]
        self._guard.complain(
            "custom_metrics",
            f"custom_metrics is {shown(custom)}; expected a mapping of names to numbers. "
            "The rest of the call was recorded.",
            error,
        )

    def _goes_back(self) -> bool:
        """Whether a resumed run begins with a lower step: it goes on from an earlier checkpoint."""
        resumed_at, self._resumed_at = self._resumed_at, None
        return resumed_at is not None and self.timer.step == resumed_at

    def _log_any_values(self, metrics: Any, step: Any, error: Exception, *, counts: bool = True) -> None:
        """Records the values that can be kept of a call that could not be recorded directly."""
        if isinstance(error, RecorderError):
            raise error
        recording = self._recording
        if recording is None:
            return
        step_number = self._checked_step(step)
        try:
            if isinstance(error, ValuesOnDevice):
                self._record_from_device(recording, metrics, step_number)
            else:
                recording.append_any(metrics, step_number)
        except RecorderError:
            raise
        except Exception as failure:  # noqa: BLE001 - training must continue on any failure
            self._guard.complain("log", f"A log call was not recorded: {shown(failure)}", failure)
        timer = self.timer
        if counts and (timer.in_batches or step_number > timer.step - timer.stride or self._goes_back()):
            timer.step = step_number + timer.stride

    def _record_from_device(self, recording: Recording, metrics: Mapping[Any, Any], step: int) -> None:
        """Records values of which some are on a GPU, without waiting for it."""
        row: dict[Any, Any] = {}
        others: dict[Any, Any] = {}
        has_late = False
        for key, value in metrics.items():
            if type(value) in _NUMBERS:
                row[key] = value
            elif not is_on_device(value):
                number = as_number(value)
                if number is None:
                    others[key] = value
                else:
                    row[key] = number
            elif value.numel() == 1 and not value.is_complex():
                row[key], has_late = value, True
            else:
                self._record_device_array(recording, key, value, step)
        if has_late:
            recording.defer(row, step)
        else:
            others.update(row)
        if others:
            recording.append_any(others, step)

    def _record_device_array(self, recording: Recording, key: Any, tensor: Any, step: int) -> None:
        if tensor.numel() <= MAX_FROM_DEVICE and not tensor.is_complex():
            recording.record_array(str(key), tensor, step)
        else:
            self._guard.complain(
                f"device {shown(key)}",
                f"{shown(key)} is {shown(tensor)} on a GPU and was not recorded; at most {MAX_FROM_DEVICE} "
                "real numbers are. Reduce it first, or log a copy on the CPU.",
            )


def _fields_of(metrics: object) -> Mapping[str, Any]:
    return metrics if isinstance(metrics, Mapping) else vars(metrics)
