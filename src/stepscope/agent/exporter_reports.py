"""Records how the exporters of each run are doing: metrics, and an event when one fails or works again."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np

from stepscope.exporters.base import Table
from stepscope.schema.keys import (
    EXPORTER_DEVICE,
    EXPORTER_DROPPED,
    EXPORTER_EVENT,
    EXPORTER_FAILING,
    EXPORTER_VALUES,
    EXPORTER_WAITING,
)
from stepscope.schema.record import Event
from stepscope.schema.sample import Metric
from stepscope.schema.series import Source

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepscope.agent.ingest.export_queue import ExporterStatus
    from stepscope.agent.ingest.feeds import Feeds
    from stepscope.schema.run import Process
    from stepscope.store.base import Store

EVERY_S = 10.0
"""How often it is recorded. An exporter may fail and work again every second."""

METRICS = (
    Metric(EXPORTER_FAILING, "1 while an exporter (its device) fails, else 0."),
    Metric(EXPORTER_VALUES, "Values that an exporter (its device) has passed on."),
    Metric(EXPORTER_DROPPED, "Values that an exporter (its device) gave up: it failed, or was too slow."),
    Metric(EXPORTER_WAITING, "Values that wait to be passed on by an exporter (its device)."),
)


class ExporterReports:
    """Records the status of exporters in the runs that they export."""

    def __init__(
        self,
        store: Store,
        feeds: Feeds,
        now: Callable[[], float] = time.monotonic,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._store, self._feeds, self._now, self._now_ns = store, feeds, now, now_ns
        self._recorded_at = float("-inf")
        self._recorded: dict[tuple[str, str], tuple[object, ...]] = {}
        """What was last recorded of each run's exporter."""

    def tick(self, *, is_last: bool = False) -> None:
        """Records the status of all exporters if it is time for it, or if there will be no other call."""
        statuses = self._feeds.statuses()
        if not statuses or not (is_last or self._now() - self._recorded_at >= EVERY_S):
            return
        self._recorded_at, time_ns = self._now(), self._now_ns()
        tables = [_table(process, status, time_ns) for process, status in statuses]
        with self._store.transaction():
            for process, status in statuses:
                if self._recorded.get((process.run_id, status.name)) != _state(status):
                    event = Event(EXPORTER_EVENT, time_ns, None, None, process.segment, asdict(status))
                    self._store.put_event(process.run_id, event)
            for table in tables:
                self._store.append(table.source, table.keys, table.steps, table.times_ns, table.values)
        self._recorded = {(process.run_id, status.name): _state(status) for process, status in statuses}
        for table in tables:
            self._feeds.add_rows(table)


def _state(status: ExporterStatus) -> tuple[object, ...]:
    """The part of a status whose change is an event."""
    return status.state, status.error, status.dropped > 0


def _table(process: Process, status: ExporterStatus, time_ns: int) -> Table:
    values = {
        EXPORTER_FAILING: float(status.state == "failing"),
        EXPORTER_VALUES: float(status.exported),
        EXPORTER_DROPPED: float(status.dropped),
        EXPORTER_WAITING: float(status.waiting),
    }
    return Table(
        Source(process.run_id, process.segment, None, process.host, EXPORTER_DEVICE + status.name, "seconds"),
        tuple(values),
        np.zeros(1, np.int64),
        np.array([time_ns], np.int64),
        np.array([list(values.values())], np.float64),
    )
