"""What the recorder writes: the metrics of a step, and events."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class TrainingMetrics:
    """The metrics of one step, for people who like to hand them over as one object."""

    timestamp: float | None = None
    """Kept as the metric `timestamp`; the record's own time is when it was logged."""
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
    """Something that happened at a moment of a run."""

    kind: str
    time_ns: int
    step: int | None
    rank: int | None
    """Whose it is; None for what concerns the whole host."""
    segment: str
    fields: dict[str, Any]
    by_user: bool = False
    """Whether the training's own code recorded it; False for stepscope's own, and where that is not known."""

    @property
    def time(self) -> float:
        """Seconds since the epoch."""
        return self.time_ns / 1e9
