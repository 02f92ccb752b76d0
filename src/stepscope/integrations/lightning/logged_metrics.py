"""Reads the loss of a step and the metrics that a module logs, without waiting for a device."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from stepscope.attach.step_losses import StepLosses

if TYPE_CHECKING:
    from stepscope.recorder.monitor import TrainingMonitor

SHARE = 0.2
"""Share of the allowed overhead that reading metrics between two logging steps may use."""

OWN_KEYS = frozenset({"loss", "epoch", "learning_rate"})
"""Keys that the callback records in every step; a metric logged under the same name is left out."""


def record_at(monitor: TrainingMonitor, metrics: Mapping[str, Any], step: int | None) -> None:
    """Records metrics of a step, which may be an earlier one, and leaves the current step as it is."""
    current = monitor.timer.step
    monitor.log(metrics, step)
    monitor.timer.step = current


class StepLoss:
    """The mean loss of the batches of a step."""

    def __init__(self) -> None:
        self._sum: Any = None
        self._batches = 0
        self._backward: StepLosses | None = None
        """Losses of backward passes, for a module that updates itself and returns no loss."""

    def add_backward(self, loss: Any) -> None:
        """Notes what a module with manual optimisation calls `manual_backward` on."""
        if self._backward is None:
            self._backward = StepLosses(sys.modules["torch"])
        self._backward.add(loss, None, in_optimizer=False)

    def of_step(self, outputs: Any, divided_by: int, *, ends_step: bool) -> Any:
        """Adds the loss of a batch, which Lightning has divided by the number of batches in a step.

        If the step ends, returns its mean loss, which may be on a GPU; None if no batch had a loss. A loss
        that the module returned comes before those of its backward passes.
        """
        is_dict = type(outputs) is dict or isinstance(outputs, Mapping)
        loss = outputs.get("loss") if is_dict else outputs
        if ends_step and not self._batches and divided_by == 1 and self._backward is None:
            return loss
        if loss is not None:
            loss = loss.detach() if hasattr(loss, "detach") else loss
            self._sum = loss if self._sum is None else self._sum + loss
            self._batches += 1
        if not ends_step:
            return None
        backward = None if self._backward is None else self._backward.take()
        total, batches = self._sum, self._batches
        self._sum, self._batches = None, 0
        if not batches:
            return backward
        return total * (divided_by / batches) if batches != divided_by else total


class LoggedMetrics:
    """Records what the module has logged with `self.log`, under Lightning's names.

    Lightning itself reads these metrics every `log_every_n_steps`. They are recorded then, and in between as
    often as the allowed overhead permits.
    """

    def __init__(self, monitor: TrainingMonitor, *, is_off: bool) -> None:
        self._monitor = monitor
        self._is_off = is_off
        """Whether a logger of the trainer, or another process, records them already."""
        self._newest: dict[str, Any] = {}
        self._due_ns = 0

    def is_due(self, trainer: Any, step: int) -> bool:
        """Whether the metrics of a training step are recorded."""
        if self._is_off:
            return False
        every = trainer.log_every_n_steps
        return bool(every) and ((step + 1) % every == 0 or monotonic_ns() >= self._due_ns)

    def record(self, trainer: Any, step: int) -> None:
        """Records the metrics that have changed since the last call."""
        if self._is_off:
            return
        began_ns = monotonic_ns()
        logged = trainer.logged_metrics
        metrics = {name: value for name, value in logged.items() if self._is_new(name, value)}
        if metrics:
            record_at(self._monitor, metrics, step)
        now_ns = monotonic_ns()
        self._due_ns = now_ns + round((now_ns - began_ns) / (SHARE * self._monitor.overhead.max_ratio))

    def record_left(self, trainer: Any) -> None:
        """Records the metrics of an epoch, which Lightning computes after the hooks at its end."""
        self.record(trainer, max(self._monitor.timer.step - 1, 0))

    def _is_new(self, name: str, value: Any) -> bool:
        # Lightning keeps old metrics, and returns another object each time for the same memory. The newest is
        # kept here, so no other can have its address.
        before, self._newest[name] = self._newest.get(name), value
        return name not in OWN_KEYS and (before is None or _address(before) != _address(value))


def _address(value: Any) -> int:
    return int(value.data_ptr()) if hasattr(value, "data_ptr") else id(value)
