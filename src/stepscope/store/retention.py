"""Deletes old runs by the limits they were recorded with; a live run is never deleted."""

from __future__ import annotations

import time
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from stepscope.config.sections import Retention
from stepscope.schema.keys import IMPORTED
from stepscope.schema.run import deciding_process

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepscope.schema.run import RunInfo
    from stepscope.store.base import Store

DAY_NS = 86_400 * 10**9

_LIMITS = {field.name for field in fields(Retention)}


def apply(store: Store, now_ns: Callable[[], int] = time.time_ns) -> list[str]:
    """Deletes ended runs that exceed their own limits, oldest first; returns their ids.

    A run without limits stays, whatever the limits of other runs are.
    """
    runs = store.runs()
    ended = sorted(filter(_has_ended, runs), key=_ended_ns)
    deleted: list[str] = []
    # Otherwise importing old runs, which have no limits, would delete the runs recorded here.
    recorded = sum(not _is_imported(run) for run in runs)
    for run in ended:
        if _exceeds_limits(run, store, recorded - len(deleted), now_ns()):
            store.delete_run(run.id)
            deleted.append(run.id)
    return deleted


def _exceeds_limits(run: RunInfo, store: Store, run_count: int, now_ns: int) -> bool:
    """Whether a run is too old, there are too many runs, or the store is too large; older runs are gone."""
    limits = limits_of(run)
    age_ns = now_ns - _ended_ns(run)
    return (
        (limits.max_age_days is not None and age_ns > limits.max_age_days * DAY_NS)
        or (limits.max_runs is not None and run_count > limits.max_runs)
        or (limits.max_bytes is not None and store.bytes_used() > limits.max_bytes)
    )


def limits_of(run: RunInfo) -> Retention:
    """The limits a run was recorded with."""
    process = deciding_process(process for segment in run.segments for process in segment.processes)
    recorded = None if process is None else process.facts.get("retention")
    if not isinstance(recorded, dict):
        return Retention()
    limits: dict[str, Any] = {
        name: value
        for name, value in recorded.items()
        if name in _LIMITS and isinstance(value, int | float) and not isinstance(value, bool)
    }
    return Retention(**limits)


def _is_imported(run: RunInfo) -> bool:
    return any(IMPORTED in process.facts for segment in run.segments for process in segment.processes)


def _has_ended(run: RunInfo) -> bool:
    # Not by the status: a run is crashed when one rank has crashed, while the others still record.
    return all(segment.ended_ns is not None for segment in run.segments)


def _ended_ns(run: RunInfo) -> int:
    """The time of the last activity; a process that recorded nothing has only its start and its end."""
    processes = [process for segment in run.segments for process in segment.processes]
    return max(max(process.started_ns, process.last_ns, process.ended_ns or 0) for process in processes)
