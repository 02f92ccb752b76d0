"""The JSON of a run that `--json` prints: plain dictionaries, times in seconds since the epoch."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from stepscope.views.run_figures import figures_of
from stepscope.views.steps.step_rate import run_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepscope.reading import Run
    from stepscope.schema.record import Event
    from stepscope.schema.run import Process, SegmentInfo
    from stepscope.schema.series import Buckets, SeriesInfo
    from stepscope.views.run_figures import RunFigures

SPARKS = 24
"""Maximum number of buckets of a trend."""


def run_summary(run: Run, folder: str) -> dict[str, Any]:
    """Returns the entry of a run in a list; None for what is not known."""
    processes = [process for segment in run.segments for process in segment.processes]
    ended_ns = run.info.ended_ns
    figures = figures_of(run)
    return {
        "id": run.id,
        "name": run.name,
        "project": run.project,
        "status": run.status,
        "reason": run.reason,
        "started": seconds(run.info.created_ns),
        "ended": None if ended_ns is None else seconds(ended_ns),
        "duration_seconds": run_seconds(run, time.time_ns()),
        "step": figures.step,
        "steps_per_second": figures.steps_per_second,
        "loss_key": figures.loss_key,
        "loss_last": last_loss(figures),
        "loss_best": figures.loss_best,
        "segments": len(run.segments),
        "dropped": sum(process.dropped for process in processes),
        "lost": sum(process.lost for process in processes),
        "folder": folder,
    }


def last_loss(figures: RunFigures) -> float | None:
    """Returns the last loss, which may be NaN or infinite; None if none was logged."""
    if figures.loss_nonfinite is not None:
        return float(figures.loss_nonfinite.replace("∞", "inf"))
    return figures.loss_last


def seconds(time_ns: int) -> float | None:
    """Returns seconds since the epoch; None for a time that a damaged journal lost."""
    return time_ns / 1e9 if time_ns else None


def run_details(run: Run, folder: str, keys: Sequence[SeriesInfo], events: Sequence[Event]) -> dict[str, Any]:
    """Returns a run with its segments and the given keys and events."""
    return {
        **run_summary(run, folder),
        "segments": [_segment(segment) for segment in run.segments],
        "keys": [_key(run, info) for info in keys],
        "events": [_event(event) for event in events],
    }


def _segment(segment: SegmentInfo) -> dict[str, Any]:
    return {
        "id": segment.id,
        "status": segment.status,
        "reason": segment.reason,
        "started": seconds(segment.started_ns),
        "ended": None if segment.ended_ns is None else seconds(segment.ended_ns),
        "processes": [_process(process) for process in segment.processes],
    }


def _process(process: Process) -> dict[str, Any]:
    return {
        "rank": process.rank,
        "host": process.host,
        "pid": process.pid,
        "role": process.role,
        "status": process.status,
        "reason": process.reason,
        "exit_code": process.exit_code,
        "started": seconds(process.started_ns),
        "ended": None if process.ended_ns is None else seconds(process.ended_ns),
        "last_record": seconds(process.last_ns),
        "dropped": process.dropped,
        "lost": process.lost,
        "facts": process.facts,
    }


def _key(run: Run, info: SeriesInfo) -> dict[str, Any]:
    buckets = run.buckets(info.key, SPARKS)
    low, high = extremes(buckets)
    return {
        "key": info.key,
        "points": info.points,
        "ranks": list(info.ranks),
        "last": float("nan") if info.last is None else info.last,
        "min": low,
        "max": high,
        "nonfinite": int(buckets.nonfinite.sum()),
    }


def _event(event: Event) -> dict[str, Any]:
    return {
        "kind": event.kind,
        "time": event.time,
        "step": event.step,
        "rank": event.rank,
        "segment": event.segment,
        "fields": event.fields,
    }


def extremes(buckets: Buckets) -> tuple[float | None, float | None]:
    """Returns the smallest and largest finite value; None if there is none."""
    known = np.isfinite(buckets.minimum)
    if not known.any():
        return None, None
    return float(buckets.minimum[known].min()), float(buckets.maximum[known].max())
