"""Takes the rows of a training and counts its steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from stepscope.errors import RecorderError, ValuesOnDevice
from stepscope.recorder.stats import StepStats
from stepscope.recorder.values import as_number, as_step, learning_rate_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stepscope.guard import Guard
    from stepscope.recorder.recording import Recording
    from stepscope.schema.record import TrainingMetrics

_ON_DEVICE = ValuesOnDevice("the loss lies on a GPU")


class StepLog(ABC):
    """The part of a monitor that is called once a step, and must be quick."""

    _guard: Guard
    _append: Callable[..., None]
    """Appends a row to the journal, or does what is to be done first."""

    def __init__(self) -> None:
        self._recording: Recording | None = None
        self._step: int = 0
        self._stride = 1
        self._epoch: float = 0
        self._epochs_begun = 0
        self._stats = StepStats()
        self._follows_late_losses = False

    @abstractmethod
    def open_recording(self) -> Recording | None:
        """What records now, begun by this call where nobody has done so; None after the end."""

    def log(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Records numbers of a step.

        Without `step` a call counts as one step; while `batches` counts the steps, it belongs to the one in
        hand. Steps may repeat, go back or leave gaps: all are kept.
        """
        try:
            if step is None:
                step = self._step
            self._append(metrics, step)
            self._step = step + self._stride
        except Exception as error:  # noqa: BLE001 - a user's value may raise anything, training goes on
            self._log_with_care(metrics, step, error)

    def log_training_step(  # noqa: PLR0913 - the names people know
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
        """Records a step; step and epoch are counted when not given, the rate read from the optimizer."""
        if epoch is not None:
            self._epoch = epoch
        if learning_rate is None and optimizer is not None:
            learning_rate = learning_rate_of(optimizer)
        is_late = False
        if type(loss) is not float:
            is_late = getattr(loss, "is_cuda", False) is True
            number = None if is_late else as_number(loss)
            loss = loss if number is None else number
        # A loss that comes late from a GPU is counted now, and followed when it is here.
        self._stats.add(loss if type(loss) is float else None)
        metrics = {"loss": loss, "epoch": self._epoch}
        if accuracy is not None:
            metrics["accuracy"] = accuracy
        if learning_rate is not None:
            metrics["learning_rate"] = learning_rate
        if custom_metrics:
            metrics.update(custom_metrics)
        if is_late and self.open_recording() is not None:
            self._follows_late_losses = True
            self._log_with_care(metrics, self._step if step is None else step, _ON_DEVICE)
        else:
            self.log(metrics, step)

    def log_training_metrics(self, metrics: TrainingMetrics) -> None:
        """Records the metrics of a step handed over as one object."""
        fields = {**vars(metrics)}
        custom = fields.pop("custom_metrics")
        step, loss, epoch = fields.pop("step"), fields.pop("loss"), fields.pop("epoch")
        given = {name: value for name, value in fields.items() if value is not None}
        self.log_training_step(loss=loss, custom_metrics={**given, **custom}, step=step, epoch=epoch)

    def record_metrics(self, step: int, loss: Any, learning_rate: Any, batch_size: Any) -> None:
        """Records the four numbers of a step."""
        self.log_training_step(
            loss=loss,
            learning_rate=learning_rate,
            custom_metrics={"batch_size": batch_size},
            step=step,
        )

    def get_training_stats(self) -> dict[str, Any]:
        """Current, average, least and greatest loss, steps and seconds, of the steps logged so far."""
        return self._stats.as_dict()

    def step_in_hand(self) -> int:
        """The number of the step that is being done."""
        return self._step

    def begin_epoch(self) -> None:
        """Counts a pass over the data; `batches` calls it."""
        self._epoch = self._epochs_begun
        self._epochs_begun += 1

    def next_step(self) -> None:
        """Counts a step; `batches` calls it."""
        self._step += 1

    def record_now(self, metrics: Mapping[str, Any]) -> None:
        """Records values of the step in hand without counting a step."""
        try:
            self._append(metrics, self._step)
        except Exception as error:  # noqa: BLE001 - training goes on whatever happens here
            self._log_with_care(metrics, self._step, error)

    def record_late(self, metrics: Mapping[str, Any], step: int, at_ns: int | None = None) -> None:
        """Records figures of an earlier step and moment."""
        try:
            self._append(metrics, step, at_ns)
        except Exception as error:  # noqa: BLE001 - training goes on whatever happens here
            self._guard.complain("late", f"Figures of step {step} were not recorded: {error!r}", error)

    def record_many(self, keys: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
        """Records many rows of earlier moments: each has its moment, its step, and a value for each key."""
        recording = self._recording
        if recording is None or recording.judges:
            for at_ns, step, *values in rows:
                self.record_late(dict(zip(keys, values, strict=True)), step, at_ns)
            return
        try:
            recording.writer.append_rows(keys, rows)
        except Exception as error:  # noqa: BLE001 - training goes on whatever happens here
            self._guard.complain(
                "late", f"The times of {len(rows)} steps were not recorded: {error!r}", error
            )

    def _follow_late_loss(self, metrics: Mapping[Any, Any]) -> None:
        if self._follows_late_losses and "loss" in metrics:
            self._stats.follow(metrics["loss"])

    def _log_with_care(self, metrics: Any, step: Any, error: Exception) -> None:
        """Keeps what can be kept of a call that could not be recorded as it came."""
        if self._recording is None:
            return
        whole = as_step(step)
        if whole is None:
            self._guard.complain(
                "step", f"step is {step!r}; it must be a whole number. Counting on instead.", error
            )
            whole = self._step
        try:
            if isinstance(error, ValuesOnDevice):
                self._recording.defer(metrics, whole)
            else:
                self._recording.append_with_care(metrics, whole)
        except RecorderError:
            raise
        except Exception as failure:  # noqa: BLE001 - training goes on whatever happens here
            self._guard.complain("log", f"A log call was not recorded: {failure!r}", failure)
        self._step = whole + self._stride
