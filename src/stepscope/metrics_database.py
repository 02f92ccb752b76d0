"""`MetricsDatabase`: runs as plain lists of dictionaries, under the names of an older interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stepscope.reading import open_store
from stepscope.schema.series import Selection, Source
from stepscope.store.place import database
from stepscope.store.sqlite import SqliteReader

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence
    from types import TracebackType

Row = dict[str, Any]


class MetricsDatabase:
    """Reads a store folder; without a path the one `open_store` would take.

    What training logged has a row for each step of each rank; what was read from the machine, one for each
    reading. A run is named by its name or id.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self._runs = open_store(path)
        self._reader = _LabelledReader(database(self._runs.folder))

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
        """What the training logged; of values logged twice in a step, the last."""
        run_id = self._runs.run(run).id
        rows: list[Row] = []
        for source, keys in self._reader.sources(run_id).items():
            if _is_training(source):
                rows += self._by_step(source, keys)
        return rows

    def get_system_metrics(self, run: str) -> list[Row]:
        """What was read from the machine and its devices."""
        run_id = self._runs.run(run).id
        rows: list[Row] = []
        for source, keys in self._reader.sources(run_id).items():
            if not _is_training(source):
                rows += self._by_time(source, keys)
        return rows

    def get_alerts(self, run: str) -> list[Row]:
        """The alerts of a run, oldest first."""
        return self._runs.run(run).alerts()

    def close(self) -> None:
        """Lets go of the store."""
        self._runs.close()
        self._reader.close()

    def __enter__(self) -> MetricsDatabase:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _by_step(self, source: Source, keys: Sequence[str]) -> list[Row]:
        rows: dict[int, Row] = {}
        for key in keys:
            points = self._reader.points(_selection(source, key))
            columns = (points.steps.tolist(), points.times.tolist(), points.values.tolist())
            for step, time, value in zip(*columns, strict=True):
                row = rows.setdefault(step, {"timestamp": time, "step": step, **_labels(source)})
                row[key] = value
        return [rows[step] for step in sorted(rows)]

    def _by_time(self, source: Source, keys: Sequence[str]) -> list[Row]:
        rows: dict[int, Row] = {}
        for key in keys:
            points = self._reader.points(_selection(source, key))
            for time_ns, value in zip(points.times_ns.tolist(), points.values.tolist(), strict=True):
                first = {"timestamp": time_ns / 1e9, "device": source.device, **_labels(source)}
                rows.setdefault(time_ns, first)[key] = value
        return [rows[time_ns] for time_ns in sorted(rows)]


class _LabelledReader(SqliteReader):
    """A reader that also tells the labels of every series."""

    def sources(self, run_id: str) -> dict[Source, list[str]]:
        """The keys of a run by where they come from, in the order they were first met."""
        rows = self._connection.execute(
            "SELECT DISTINCT series.segment, series.rank, series.host, series.device, axis, key FROM series"
            " JOIN member ON member.series_id = series.id JOIN key_set ON key_set.id = key_set_id"
            " WHERE series.run_id = ? ORDER BY series.id",
            (run_id,),
        )
        found: dict[Source, list[str]] = {}
        for segment, rank, host, device, axis, key in rows:
            found.setdefault(Source(run_id, segment, rank, host, device, axis), []).append(key)
        return found


def _is_training(source: Source) -> bool:
    return source.device == "" and source.axis == "step"


def _labels(source: Source) -> Row:
    return {"segment": source.segment, "rank": source.rank, "host": source.host}


def _selection(source: Source, key: str) -> Selection:
    return Selection(source.run_id, key, source.segment, source.rank, source.host, source.device)
