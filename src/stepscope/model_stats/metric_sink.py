"""Where figures of a model go that are measured inside it: numbers, arrays, events, complaints."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Protocol

from stepscope.guard import Guard

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stepscope.model_stats.hooking import OptimizerSteps


class Events(Protocol):
    """Takes a moment of the run, as `TrainingMonitor.own_event` does."""

    def __call__(self, kind: str, /, **fields: Any) -> None:
        """Marks the moment."""


def _no_tensor(_keys: Sequence[str], _values: Any) -> None: ...


def _no_array(_key: str, _values: Any) -> None: ...


def _no_event(kind: str, /, **_fields: Any) -> None: ...


def _no_step() -> int:
    return 0


@dataclass(frozen=True)
class MetricSink:
    """What is not given takes nothing."""

    record_tensor: Callable[[Sequence[str], Any], None] = _no_tensor
    """Takes the elements of a tensor, one for each key, for the step in hand, without waiting for them."""

    record_array: Callable[[str, Any], None] = _no_array
    """Takes a tensor whole, without waiting for it."""

    event: Events = _no_event
    """Takes a moment of the run."""

    read_later: Callable[[Any, Callable[[list[float]], None]], None] | None = None
    """Calls back with the elements of a tensor on a GPU once they have come from there."""

    optimizer_steps: OptimizerSteps | None = None
    """Who tells when an optimizer steps; else it is given hooks of its own."""

    current_step: Callable[[], int] = _no_step
    now_ns: Callable[[], int] = perf_counter_ns
    """The clock by which steps are as long as they are."""
    guard: Guard = field(default_factory=lambda: Guard(strict=False))

    def read(self, values: Any, then: Callable[[list[float]], None]) -> None:
        """Hands over the elements of a tensor: at once from the host, later from a device, or never."""
        if values.device.type == "cpu":
            then(values.tolist())
        elif self.read_later is not None:
            self.read_later(values, then)
