"""Deletes old runs under the limits people set; a live run is never touched."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from stepscope.config.sections import Retention
    from stepscope.schema.run import RunInfo
    from stepscope.store.base import Store

DAY_NS = 86_400 * 10**9


def apply(store: Store, limits: Retention, now_ns: Callable[[], int] = time.time_ns) -> list[str]:
    """Deletes what the limits ask for, oldest first, and returns the ids."""
    runs = store.runs()
    ended = sorted(filter(_has_ended, runs), key=_ended_ns)
    deleted = []
    for run in _beyond(ended, limits, now_ns(), len(runs)):
        store.delete_run(run.id)
        deleted.append(run.id)
    if limits.max_bytes is not None:
        for run in ended:
            if store.bytes_used() <= limits.max_bytes:
                break
            if run.id not in deleted:
                store.delete_run(run.id)
                deleted.append(run.id)
    return deleted


def _beyond(ended: list[RunInfo], limits: Retention, now_ns: int, total: int) -> Iterator[RunInfo]:
    surplus = 0 if limits.max_runs is None else max(total - limits.max_runs, 0)
    for position, run in enumerate(ended):
        age_ns = now_ns - _ended_ns(run)
        too_old = limits.max_age_days is not None and age_ns > limits.max_age_days * DAY_NS
        if too_old or position < surplus:
            yield run


def _has_ended(run: RunInfo) -> bool:
    # Not by the status: a run whose one rank crashed shows that while the others still record.
    return all(part.ended_ns is not None for part in run.segments)


def _ended_ns(run: RunInfo) -> int:
    """When anything last happened; a process that recorded nothing has only its start and its end."""
    processes = [process for part in run.segments for process in part.processes]
    return max(max(one.started_ns, one.last_ns, one.ended_ns or 0) for one in processes)
