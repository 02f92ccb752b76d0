"""Where statistics of a model are recorded: numbers, arrays, events, failures."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Protocol

from stepscope.guard import Guard

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stepscope.model_stats.hooking import OptimizerSteps


class Events(Protocol):
    """Records an event of the run, as `TrainingMonitor.own_event` does."""

    def __call__(self, kind: str, /, **fields: Any) -> None:
        """Records the event."""


def _no_tensor(_keys: Sequence[str], _values: Any) -> None: ...


def _no_array(_key: str, _values: Any) -> None: ...


def _no_event(kind: str, /, **_fields: Any) -> None: ...


def _no_step() -> int:
    return 0


@dataclass(frozen=True)
class MetricSink:
    """Functions that record statistics; those that are not passed do nothing."""

    record_tensor: Callable[[Sequence[str], Any], None] = _no_tensor
    """Records the elements of a tensor for the current step, one for each key, without waiting for them."""

    record_array: Callable[[str, Any], None] = _no_array
    """Records a whole tensor, without waiting for it."""

    event: Events = _no_event
    """Records an event of the run."""

    read_later: Callable[[Any, Callable[[list[float]], None]], None] | None = None
    """Calls back with the elements of a tensor on a GPU once they have been copied."""

    optimizer_steps: OptimizerSteps | None = None
    """Calls listeners when an optimizer steps; without it, each watcher registers its own hooks."""

    current_step: Callable[[], int] = _no_step
    now_ns: Callable[[], int] = perf_counter_ns
    """The clock for step times."""
    guard: Guard = field(default_factory=lambda: Guard(strict=False))

    def read(self, values: Any, then: Callable[[list[float]], None]) -> None:
        """Calls back with the elements of a tensor: immediately on the host, later on a device, or never."""
        if values.device.type == "cpu":
            then(values.tolist())
        elif self.read_later is not None:
            self.read_later(values, then)
