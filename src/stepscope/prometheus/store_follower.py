"""Reads from a store what has been recorded since the last time, where no agent hands it over."""

from __future__ import annotations

import fnmatch
import time
from typing import TYPE_CHECKING

import numpy as np

from stepscope.exporters.base import Table
from stepscope.prometheus.families import THROTTLE_KEY_START
from stepscope.prometheus.live_state import MACHINE_KEYS, MAX_RUNS, SERVED_AFTER_END_S, LiveState
from stepscope.prometheus.run_state import GPU_OF_PROCESS, RANK_KEYS
from stepscope.schema.keys import STEP_SECONDS
from stepscope.schema.sample import DeviceFacts
from stepscope.schema.series import Selection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from stepscope.prometheus.options import Options
    from stepscope.schema.run import RunInfo
    from stepscope.schema.series import Points, Source
    from stepscope.store.base import Counter, Reader

FIRST_POINTS = 20_000
"""How many of the newest points of a logged series are read first."""
FIRST_SAMPLES = 2


class StoreFollower:
    """Brings the runs of a store into memory: those that are live, and those that ended a short time ago."""

    def __init__(self, state: LiveState, options: Options, now: Callable[[], float] = time.time) -> None:
        self._state, self._options, self._now = state, options, now
        self._counts: dict[str, dict[int, int]] = {}
        """How many points of each series were taken, by run."""
        self._event_ids: dict[str, int] = {}

    def read(self, reader: Reader) -> None:
        """Takes what is new in the store."""
        with reader.moment():
            runs = self._chosen(reader.runs())
            for run in runs:
                self._read_run(reader, run)
        chosen = {run.id for run in runs}
        for known in (self._counts, self._event_ids):
            for run_id in known.keys() - chosen:
                del known[run_id]

    def _chosen(self, runs: Iterable[RunInfo]) -> list[RunInfo]:
        oldest_end_ns = (self._now() - SERVED_AFTER_END_S) * 1e9
        current = [run for run in runs if run.ended_ns is None or run.ended_ns >= oldest_end_ns]
        return sorted(current, key=lambda run: -run.last_ns)[:MAX_RUNS]

    def _read_run(self, reader: Reader, run: RunInfo) -> None:
        if run.id not in self._counts:
            self._counts[run.id] = {}
            self._state.add_run(run.id, self._options)
        for segment in run.segments[-2:]:
            for process in segment.processes:
                self._state.begin(process)
        newest = run.segments[-1].id
        counters = [
            counter
            for counter in reader.counters(run.id)
            if counter.source.segment == newest and self._is_used(counter)
        ]
        for table in self._tables(reader, run.id, counters):
            # Else a server that is started again would add what it has counted before.
            self._state.take(table, is_counted=int(table.times_ns[0]) >= self._state.began_ns)
        for event_id, event in reader.events_since(run.id, self._event_ids.get(run.id, 0)):
            self._event_ids[run.id] = event_id
            if event.kind == "device" and not event.by_user:
                self._state.describe(DeviceFacts(str(event.fields.get("device")), event.fields))
            else:
                self._state.take_event(run.id, event)
        self._state.set_verdicts(
            run.id, reader.findings(run.id), reader.alerts(run.id), reader.notices(run.id)
        )

    def _is_used(self, counter: Counter) -> bool:
        key = counter.key
        if counter.source.rank is None:
            return key in MACHINE_KEYS or key.startswith(THROTTLE_KEY_START)
        if key in RANK_KEYS or key == GPU_OF_PROCESS:
            return True
        return any(fnmatch.fnmatchcase(key, name) for name in self._options.user_metrics)

    def _tables(self, reader: Reader, run_id: str, counters: list[Counter]) -> list[Table]:
        """New points as rows: keys that were recorded together are columns of one table, as in an agent."""
        counts = self._counts[run_id]
        rows: dict[tuple[Source, bytes], dict[str, Points]] = {}
        for counter in counters:
            taken = counts.get(counter.series_id)
            if taken is None:
                first = FIRST_POINTS if counter.source.axis == "step" else FIRST_SAMPLES
                taken = max(0, counter.points - first)
            if counter.points > taken:
                points = reader.points_since(_selection(counter), taken)
                rows.setdefault((counter.source, points.times_ns.tobytes()), {})[counter.key] = points
            counts[counter.series_id] = counter.points
        tables = [_table(source, columns) for (source, _), columns in rows.items()]
        # Step times come last: batch sizes that were recorded with them are known by then.
        return sorted(tables, key=lambda table: STEP_SECONDS in table.keys)


def _selection(counter: Counter) -> Selection:
    source = counter.source
    return Selection(
        source.run_id, counter.key, source.segment, source.rank, source.host, source.device, source.axis
    )


def _table(source: Source, columns: dict[str, Points]) -> Table:
    first = next(iter(columns.values()))
    values = np.stack([points.values for points in columns.values()], axis=1)
    return Table(source, tuple(columns), first.steps, first.times_ns, values)
