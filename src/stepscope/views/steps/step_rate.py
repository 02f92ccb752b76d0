"""Computes the speed of a run: over the last 30 seconds while it is live, over the whole run after that."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from stepscope.schema.run import LIVE

if TYPE_CHECKING:
    from stepscope.reading import Run
    from stepscope.schema.run import SegmentInfo
    from stepscope.schema.series import Buckets
    from stepscope.store.base import SeriesSummary

RECENT_S = 30.0
MAX_BUCKETS = 64
DEFAULT_STEPS = 2_048
"""The number of last steps that are read if the step time is not known."""


def recent_step_rate(run: Run, newest: SeriesSummary, step_s: float | None) -> float | None:
    """Returns steps per second over the last 30 seconds of a segment; `newest` is logged once a step."""
    if newest.last_step is None or newest.points < 2:
        return None
    steps = DEFAULT_STEPS if not step_s else min(max(ceil(2 * RECENT_S / step_s), 16), 10_000_000)
    source = newest.source
    buckets = run.buckets(
        newest.key,
        MAX_BUCKETS,
        low=newest.last_step - steps,
        high=newest.last_step,
        rank=source.rank,
        segment=source.segment,
        device=source.device,
        axis="step",
    )
    if len(buckets) < 2:
        return None
    order = np.argsort(buckets.times, kind="stable")
    times, counts = buckets.times[order], buckets.count[order]
    first = min(int(np.searchsorted(times, times[-1] - RECENT_S)), len(times) - 2)
    elapsed_s = float(times[-1] - times[first])
    return float(counts[first + 1 :].sum()) / elapsed_s if elapsed_s > 0 else None


def whole_run_step_rate(
    series: list[SeriesSummary], buckets: Buckets, segments: tuple[SegmentInfo, ...]
) -> float | None:
    """Returns steps per second over a whole run, from step times or, without those, from logging times.

    Returns None for a run of one step, which has no rate.
    """
    if sum(summary.points for summary in series) < 2:
        return None
    if series and series[0].key == "step_seconds":
        seconds = sum(summary.total for summary in series)
        return sum(summary.finite for summary in series) / seconds if seconds > 0 else None
    if len(buckets) < 2:
        return None
    order = np.argsort(buckets.times, kind="stable")
    times, counts = buckets.times[order], buckets.count[order]
    elapsed_s = float(times[-1] - times[0]) - _downtime_s(segments, float(times[0]), float(times[-1]))
    return float(counts[1:].sum()) / elapsed_s if elapsed_s > 0 else None


def run_seconds(run: Run, now_ns: int) -> float:
    """Returns how long a run has run: the sum of its segments, without the time between them."""
    return sum(segment_seconds(segment, now_ns) for segment in run.segments)


def segment_seconds(segment: SegmentInfo, now_ns: int) -> float:
    """Returns how long a segment ran, or has run so far."""
    if not segment.started_ns:
        return 0.0
    end_ns = segment.ended_ns
    if end_ns is None:
        is_live = any(process.status in LIVE for process in segment.processes)
        end_ns = now_ns if is_live else max(process.last_ns for process in segment.processes)
    return max(end_ns - segment.started_ns, 0) / 1e9


def _downtime_s(segments: tuple[SegmentInfo, ...], begin: float, end: float) -> float:
    """Returns how much of a time span is between segments."""
    total, last_end = 0.0, begin
    for segment in segments:
        started = segment.started_ns / 1e9
        total += max(0.0, min(started, end) - max(last_end, begin))
        ended_ns = segment.ended_ns or max(process.last_ns for process in segment.processes)
        last_end = max(last_end, ended_ns / 1e9)
    return total
