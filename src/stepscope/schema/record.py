"""What the recorder writes: the metrics of a step, events and arrays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass
class TrainingMetrics:
    """The metrics of one step, as one object."""

    timestamp: float | None = None
    """Recorded as the metric `timestamp`; the time of the record itself is when it was logged."""
    epoch: int | None = None
    step: int | None = None
    loss: float | None = None
    learning_rate: float | None = None
    batch_size: int | None = None
    accuracy: float | None = None
    gradient_norm: float | None = None
    throughput: float | None = None
    custom_metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Event:
    """Something that happened at a point in time of a run."""

    kind: str
    time_ns: int
    step: int | None
    rank: int | None
    """The rank it belongs to; None for the whole host."""
    segment: str
    fields: dict[str, Any]
    by_user: bool = False
    """Whether the user's code recorded it; False for stepscope's own events, and where that is unknown."""

    @property
    def time(self) -> float:
        """Seconds since the epoch."""
        return self.time_ns / 1e9


@dataclass(frozen=True)
class StoredArray:
    """An array that a rank recorded, such as a histogram."""

    segment: str
    rank: int
    key: str
    step: int | None
    time_ns: int
    values: NDArray[np.generic]
