"""What `--json` says of a run: plain dictionaries, times in seconds since the epoch."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from stepscope.views.run_figures import figures_of
from stepscope.views.steps.pace import run_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepscope.reading import Run
    from stepscope.schema.record import Event
    from stepscope.schema.run import Process, SegmentInfo
    from stepscope.schema.series import Buckets, SeriesInfo
    from stepscope.views.run_figures import RunFigures

SPARKS = 24
"""A trend has at most so many buckets."""


def run_in_short(one: Run, folder: str) -> dict[str, Any]:
    """A run as a list shows it; None where something is not known."""
    processes = [process for part in one.segments for process in part.processes]
    ended_ns = one.info.ended_ns
    figures = figures_of(one)
    return {
        "id": one.id,
        "name": one.name,
        "project": one.project,
        "status": one.status,
        "reason": one.reason,
        "started": seconds(one.info.created_ns),
        "ended": None if ended_ns is None else seconds(ended_ns),
        "duration_seconds": run_seconds(one, time.time_ns()),
        "step": figures.step,
        "steps_per_second": figures.steps_per_second,
        "loss_key": figures.loss_key,
        "loss_last": loss_shown(figures),
        "loss_best": figures.loss_best,
        "segments": len(one.segments),
        "dropped": sum(process.dropped for process in processes),
        "lost": sum(process.lost for process in processes),
        "folder": folder,
    }


def loss_shown(figures: RunFigures) -> float | None:
    """The newest loss, as NaN or infinite as it is; None where none was logged."""
    if figures.loss_nonfinite is not None:
        return float(figures.loss_nonfinite.replace("∞", "inf"))
    return figures.loss_last


def seconds(time_ns: int) -> float | None:
    """Seconds since the epoch; None for a time that a damaged journal did not tell."""
    return time_ns / 1e9 if time_ns else None


def run_in_full(one: Run, folder: str, keys: Sequence[SeriesInfo], events: Sequence[Event]) -> dict[str, Any]:
    """A run with its segments, and those of its keys and events that are asked for."""
    return {
        **run_in_short(one, folder),
        "segments": [_segment(part) for part in one.segments],
        "keys": [_key(one, known) for known in keys],
        "events": [_event(event) for event in events],
    }


def _segment(part: SegmentInfo) -> dict[str, Any]:
    return {
        "id": part.id,
        "status": part.status,
        "reason": part.reason,
        "started": seconds(part.started_ns),
        "ended": None if part.ended_ns is None else seconds(part.ended_ns),
        "processes": [_process(process) for process in part.processes],
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


def _key(one: Run, known: SeriesInfo) -> dict[str, Any]:
    buckets = one.buckets(known.key, SPARKS)
    low, high = extremes(buckets)
    return {
        "key": known.key,
        "points": known.points,
        "ranks": list(known.ranks),
        "last": float("nan") if known.last is None else known.last,
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
    """Least and greatest finite value; None when there is none."""
    known = np.isfinite(buckets.minimum)
    if not known.any():
        return None, None
    return float(buckets.minimum[known].min()), float(buckets.maximum[known].max())
