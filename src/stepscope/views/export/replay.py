"""Passes a stored run to a live exporter, as if it were recorded now."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from stepscope.exporters.base import RecordedArray, Table
from stepscope.schema.sample import DeviceFacts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from stepscope.exporters.base import Feed
    from stepscope.reading import Run
    from stepscope.schema.series import Points, Source

MAX_CELLS = 1 << 16
"""The most values of a table."""


def replay(run: Run, feed: Feed, keys: Collection[str] | None = None) -> None:
    """Passes a run on, or some keys of it, start by start; does not close the exporter."""
    for event in run.own_events("device"):
        fields = {name: value for name, value in event.fields.items() if name not in ("host", "device")}
        feed.describe(DeviceFacts(str(event.fields.get("device", "")), fields))
    processes = [process for segment in run.segments for process in segment.processes]
    for process in processes:
        feed.begin(replace(process, status="running", reason="", exit_code=None, ended_ns=None))
    _replay_records(run, feed, keys)
    for process in processes:
        feed.begin(process)
    for process in processes:
        if process.role == "rank" and process.ended_ns is not None:
            feed.finish(run.id, process.segment, process.rank)


def _replay_records(run: Run, feed: Feed, keys: Collection[str] | None) -> None:
    for event in run.events():
        feed.take_event(run.id, event)
    for segment in run.segments:
        for table in _tables(run, segment.id, keys):
            feed.take(table)
    for array in run.stored_arrays():
        if keys is None or array.key in keys:
            feed.take_array(RecordedArray(run.id, **vars(array)))


def _tables(run: Run, segment: str, keys: Collection[str] | None) -> Iterator[Table]:
    """The rows of a start: the machine first, then each rank."""
    sources = [(source, logged) for source, logged in run.sources().items() if source.segment == segment]
    for source, logged in sorted(sources, key=lambda item: (item[0].axis == "step", item[0].rank or 0)):
        chosen = logged if keys is None else [key for key in logged if key in keys]
        for names, points, columns in _key_sets(run, source, chosen):
            rows = max(1, MAX_CELLS // len(names))
            for first in range(0, len(points), rows):
                part = slice(first, first + rows)
                values = np.stack([column[part] for column in columns], axis=1)
                steps = points.steps[part] if source.axis == "step" else np.zeros(len(values), np.int64)
                yield Table(source, names, steps, points.times_ns[part], values)


def _key_sets(
    run: Run, source: Source, keys: Sequence[str]
) -> list[tuple[list[str], Points, list[np.ndarray[tuple[int], np.dtype[np.float64]]]]]:
    """Groups keys that were logged together: they have the same steps and times."""
    sets: dict[
        tuple[bytes, bytes], tuple[list[str], Points, list[np.ndarray[tuple[int], np.dtype[np.float64]]]]
    ]
    sets = {}
    for key in keys:
        points = run.series(key, source.rank, source.segment, source.host, source.device, source.axis)
        rows = (points.steps.tobytes(), points.times_ns.tobytes())
        names, _, columns = sets.setdefault(rows, ([], points, []))
        names.append(key)
        columns.append(points.values)
    return list(sets.values())
