"""`MetricsDatabase`: runs as lists of dictionaries, with the names of an older interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stepscope.reading import open_store

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence
    from types import TracebackType

    from stepscope.reading import Run
    from stepscope.schema.series import Points, Source

Row = dict[str, Any]


class MetricsDatabase:
    """Reads a store folder; the default is that of `open_store`.

    Logged metrics have a row for each step of each rank; metrics of the machine have a row for each reading.
    A run is identified by its name or id.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self._runs = open_store(path)

    def list_runs(self) -> list[Row]:
        """All runs, oldest first."""
        return [
            {
                "id": run.id,
                "name": run.name,
                "project": run.project,
                "status": run.status,
                "reason": run.reason,
                "started": run.info.created_ns / 1e9,
                "ended": None if run.info.ended_ns is None else run.info.ended_ns / 1e9,
                "segments": len(run.segments),
            }
            for run in self._runs.runs()
        ]

    def get_training_metrics(self, run: str) -> list[Row]:
        """The metrics that the training logged; of values logged twice in a step, the last."""
        stored = self._runs.run(run)
        rows: list[Row] = []
        for source, keys in stored.sources().items():
            if _is_training(source):
                rows += _by_step(stored, source, keys)
        return rows

    def get_system_metrics(self, run: str) -> list[Row]:
        """The metrics of the machine and its devices."""
        stored = self._runs.run(run)
        rows: list[Row] = []
        for source, keys in stored.sources().items():
            if not _is_training(source):
                rows += _by_time(stored, source, keys)
        return rows

    def get_alerts(self, run: str) -> list[Row]:
        """The alerts of a run, oldest first."""
        return self._runs.run(run).alerts()

    def close(self) -> None:
        """Closes the store."""
        self._runs.close()

    def __enter__(self) -> MetricsDatabase:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _by_step(run: Run, source: Source, keys: Sequence[str]) -> list[Row]:
    rows: dict[int, Row] = {}
    for key in keys:
        points = _points(run, source, key)
        columns = (points.steps.tolist(), points.times.tolist(), points.values.tolist())
        for step, time, value in zip(*columns, strict=True):
            row = rows.setdefault(step, {"timestamp": time, "step": step, **_labels(source)})
            row[key] = value
    return [rows[step] for step in sorted(rows)]


def _by_time(run: Run, source: Source, keys: Sequence[str]) -> list[Row]:
    rows: dict[int, Row] = {}
    for key in keys:
        points = _points(run, source, key)
        for time_ns, value in zip(points.times_ns.tolist(), points.values.tolist(), strict=True):
            first = {"timestamp": time_ns / 1e9, "device": source.device, **_labels(source)}
            rows.setdefault(time_ns, first)[key] = value
    return [rows[time_ns] for time_ns in sorted(rows)]


def _points(run: Run, source: Source, key: str) -> Points:
    return run.series(key, source.rank, source.segment, source.host, source.device)


def _is_training(source: Source) -> bool:
    return source.device == "" and source.axis == "step"


def _labels(source: Source) -> Row:
    return {"segment": source.segment, "rank": source.rank, "host": source.host}
