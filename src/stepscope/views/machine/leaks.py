"""Judges the memory of each process and GPU of a run, from all readings of its newest segment."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from stepscope.analysis.memory_growth import (
    ALLOCATED,
    LIMIT_KEYS,
    PROCESS_KEYS,
    growth_of,
    horizon_s,
    leak_verdict,
    limit_of,
)
from stepscope.schema.run import LIVE
from stepscope.schema.window import MachineFigures

if TYPE_CHECKING:
    from stepscope.analysis.memory_growth import LeakVerdict
    from stepscope.reading import Run
    from stepscope.schema.series import Source


def leaks_of(
    run: Run, remaining_seconds: float | None = None, now_ns: int | None = None
) -> list[LeakVerdict]:
    """Returns a verdict for the memory of each process and GPU of the newest segment, leaks first.

    `remaining_seconds` is how long a live run will still run, if that is known.
    """
    now_ns = time.time_ns() if now_ns is None else now_ns
    age_s = (now_ns - run.segments[-1].started_ns) / 1e9
    horizon = horizon_s(age_s, remaining_seconds) if run.status in LIVE else 0.0
    verdicts = []
    for source, keys in run.sources().items():
        for key in (ALLOCATED, *PROCESS_KEYS) if source.segment == run.segments[-1].id else ():
            if key not in keys:
                continue
            points = run.series(key, source.rank, source.segment, source.host, source.device, source.axis)
            figures = MachineFigures(
                key, source.rank, source.host, source.device, points.times, points.values
            )
            growth = growth_of(points.times, points.values, points.steps.astype(np.float64))
            verdicts.append(leak_verdict(figures, growth, limit_of(key, _totals(run, source)), horizon))
    return sorted(verdicts, key=lambda verdict: (not verdict.is_leak, not verdict.growth.goes_on))


def _totals(run: Run, source: Source) -> dict[str, float]:
    """Returns the sizes of the memory that a source uses, by key."""
    totals: dict[str, float] = {}
    for other, keys in run.sources().items():
        if other.host == source.host and other.segment == source.segment:
            for key in LIMIT_KEYS:
                if key in keys:
                    newest = run.series(key, other.rank, other.segment, other.host, other.device, other.axis)
                    size = float(newest.values[-1]) if len(newest) else 0.0
                    totals[key] = min(totals.get(key, size), size)
    for event in run.own_events("census"):
        if event.rank == source.rank and event.segment == source.segment:
            for device in event.fields.get("devices", ()):
                totals["gpu/memory_total_bytes"] = float(device["total_bytes"])
    return totals
