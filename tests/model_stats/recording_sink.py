"""A metric sink that keeps everything recorded, for tests."""

from __future__ import annotations

from stepscope.model_stats.metric_sink import MetricSink


class RecordedMetrics:
    """Everything that was recorded, in order."""

    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []
        self.arrays: list[tuple[str, list[float]]] = []
        self.events: list[dict] = []
        self.step = 0
        self.sink = MetricSink(
            record_tensor=lambda keys, values: self.rows.append(
                dict(zip(keys, values.tolist(), strict=True))
            ),
            record_array=lambda key, values: self.arrays.append((key, values.tolist())),
            event=lambda kind, **fields: self.events.append({"kind": kind, **fields}),
            current_step=lambda: self.step,
        )

    def of(self, key: str) -> list[float]:
        """All values recorded under a key."""
        return [row[key] for row in self.rows if key in row]


def always() -> float:
    """A draw that makes everything due."""
    return 0.0


def never() -> float:
    """A draw that makes nothing due."""
    return 1.0


def end_step(observer, step: int = 0) -> None:
    """Calls an observer when it is due, as `StepPhases` does."""
    observer.due -= 1
    if observer.due <= 0:
        observer.due = 1
        observer.after_step(step)
