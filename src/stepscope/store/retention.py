"""Deletes old runs under the limits people set; a live run is never touched."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from stepscope.schema.run import LIVE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from stepscope.config.sections import Retention
    from stepscope.schema.run import RunInfo
    from stepscope.store.base import Store

DAY_NS = 86_400 * 10**9


def apply(store: Store, limits: Retention, now_ns: Callable[[], int] = time.time_ns) -> list[str]:
    """Deletes what the limits ask for, oldest first, and returns the ids."""
    ended = [run for run in store.runs() if run.status not in LIVE]
    ended.sort(key=lambda run: run.last_ns)
    deleted = []
    for run in _beyond(ended, limits, now_ns(), len(store.runs())):
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


def _beyond(
    ended: list[RunInfo], limits: Retention, now_ns: int, total: int
) -> Iterator[RunInfo]:
    surplus = 0 if limits.max_runs is None else max(total - limits.max_runs, 0)
    for position, run in enumerate(ended):
        age_ns = now_ns - run.last_ns
        too_old = limits.max_age_days is not None and age_ns > limits.max_age_days * DAY_NS
        if too_old or position < surplus:
            yield run
