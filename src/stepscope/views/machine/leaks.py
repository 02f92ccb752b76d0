"""Decides whether memory grows without end, how fast, and when it will be full."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from stepscope.schema.run import LIVE
from stepscope.views.machine.slopes import is_line, lower_quartiles, slope_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from stepscope.reading import Run
    from stepscope.schema.series import Source
    from stepscope.views.machine.slopes import Slope

    Floats = NDArray[np.float64]

KEYS = ("memory/allocated_bytes", "process/uss_bytes", "process/rss_bytes")

MAX_FULL_RATIO = 0.8
"""Memory counts as full at this share of its limit, which leaves room for short peaks."""

MIN_READINGS = 30
"""Minimum number of readings after the warm-up for a verdict."""

HORIZON_S = 86_400.0
"""A run of unknown length is assumed to run for another day, or as long again as it has run."""

_WARM_UPS = (0.1, 0.2, 0.3, 0.4, 0.5)


@dataclass(frozen=True)
class Limit:
    """A memory limit, and what sets it: host, container or device."""

    limit_bytes: float
    whose: str


@dataclass(frozen=True)
class Growth:
    """How a memory series grows after its warm-up."""

    per_hour: Slope | None
    """Bytes; None for too few readings."""
    per_thousand_steps: Slope | None
    """Bytes; None if no steps are known."""
    goes_on: bool
    """Whether it clearly grows all the time, and not in one jump."""
    readings: int
    seconds: float
    """The time span of the readings."""
    level_bytes: float
    """The last value."""


@dataclass(frozen=True)
class LeakVerdict:
    """The verdict on one memory series."""

    key: str
    rank: int | None
    host: str
    device: str
    growth: Growth
    limit: Limit | None
    seconds_to_limit: float | None
    """From the last reading, at the current growth; None if it does not grow or has no limit."""
    projected_ratio: float | None
    """The projected share of the limit in use at the end of the run."""
    horizon_seconds: float
    """The assumed time from the last reading to the end of the run."""
    is_leak: bool | None
    """Whether memory grows and will be full before the end; None if it grows and no limit is known."""
    why: str


def leaks_of(
    run: Run, remaining_seconds: float | None = None, now_ns: int | None = None
) -> list[LeakVerdict]:
    """Returns a verdict for the memory of each process and GPU of the newest segment, leaks first.

    `remaining_seconds` is how long a live run will still run, if that is known.
    """
    now_ns = time.time_ns() if now_ns is None else now_ns
    age_s = (now_ns - run.segments[-1].started_ns) / 1e9
    horizon_s = 0.0
    if run.status in LIVE:
        horizon_s = max(HORIZON_S, age_s) if remaining_seconds is None else remaining_seconds
    verdicts = []
    for key, source in _memory_series(run):
        points = run.series(key, source.rank, source.segment, source.host, source.device, source.axis)
        growth = growth_of(points.times, points.values, points.steps.astype(np.float64))
        verdicts.append(leak_verdict(key, source, growth, _limit(run, key, source), horizon_s))
    return sorted(verdicts, key=lambda verdict: (not verdict.is_leak, not verdict.growth.goes_on))


def growth_of(times: Floats, values: Floats, steps: Floats | None = None) -> Growth:
    """Returns how a series grows; times are in seconds, values in bytes."""
    finite = np.isfinite(values)
    seconds = times[finite] - (times[finite][0] if finite.any() else 0.0)
    axis = seconds if steps is None else steps[finite]
    used, seconds, axis = lower_quartiles(values[finite], seconds, axis)
    start = _end_of_warm_up(seconds, used)
    seconds, used, axis = seconds[start:], used[start:], axis[start:]
    span_s = float(seconds[-1] - seconds[0]) if len(seconds) else 0.0
    level = float(used[-1]) if len(used) else 0.0
    slope = slope_of(seconds, used) if len(used) >= MIN_READINGS else None
    if slope is None:
        return Growth(None, None, goes_on=False, readings=len(used), seconds=span_s, level_bytes=level)
    by_step = slope_of(axis, used) if steps is not None else None
    return Growth(
        per_hour=slope.times(3600.0),
        per_thousand_steps=None if by_step is None else by_step.times(1000.0),
        goes_on=slope.low > 0 and _is_steady(seconds, used),
        readings=len(used),
        seconds=span_s,
        level_bytes=level,
    )


def leak_verdict(
    key: str, source: Source, growth: Growth, limit: Limit | None, horizon_s: float
) -> LeakVerdict:
    """Returns a verdict that compares the growth with the free memory."""
    per_s = growth.per_hour.value / 3600.0 if growth.per_hour is not None and growth.goes_on else 0.0
    room_s = ratio = None
    if limit is not None:
        room_s = max(limit.limit_bytes - growth.level_bytes, 0.0) / per_s if per_s > 0 else None
        ratio = (growth.level_bytes + per_s * horizon_s) / limit.limit_bytes
    is_leak: bool | None = growth.goes_on
    if growth.goes_on:
        is_leak = None if ratio is None else ratio > MAX_FULL_RATIO
    return LeakVerdict(
        key=key,
        rank=source.rank,
        host=source.host,
        device=source.device,
        growth=growth,
        limit=limit,
        seconds_to_limit=room_s,
        projected_ratio=ratio,
        horizon_seconds=horizon_s,
        is_leak=is_leak,
        why=_why(growth, limit, ratio),
    )


def _end_of_warm_up(x: Floats, y: Floats) -> int:
    """Returns where both halves of the rest begin to grow alike; the middle if they never do."""
    for share in _WARM_UPS:
        start = int(len(y) * share)
        middle = (start + len(y)) // 2
        if middle - start < MIN_READINGS // 2:
            break
        early, late = slope_of(x[start:middle], y[start:middle]), slope_of(x[middle:], y[middle:])
        if early is not None and late is not None and early.agrees_with(late):
            return start
    return int(len(y) * _WARM_UPS[0 if len(y) < 2 * MIN_READINGS else -1])


def _is_steady(x: Floats, y: Floats) -> bool:
    """Returns whether the growth is neither a jump nor slowing down."""
    middle = len(y) // 2
    early, late = slope_of(x[:middle], y[:middle]), slope_of(x[middle:], y[middle:])
    if early is None or late is None:
        return False
    slows_down = late.value < early.value and not late.agrees_with(early)
    return not slows_down and is_line(x, y)


def _memory_series(run: Run) -> Iterator[tuple[str, Source]]:
    newest = run.segments[-1].id
    for source, keys in run.sources().items():
        if source.segment == newest:
            yield from ((key, source) for key in KEYS if key in keys)


def _limit(run: Run, key: str, source: Source) -> Limit | None:
    """Returns the lowest limit that applies to a series."""
    if key.startswith("process/"):
        limits = [
            Limit(value, whose)
            for name, whose in (("memory/total_bytes", "host"), ("memory/cgroup_limit_bytes", "container"))
            if (value := _min_newest(run, name, source)) is not None
        ]
        return min(limits, key=lambda limit: limit.limit_bytes, default=None)
    totals = [
        float(device["total_bytes"])
        for event in run.own_events("census")
        if event.rank == source.rank and event.segment == source.segment
        for device in event.fields.get("devices", ())
    ]
    total = totals[-1] if totals else _min_newest(run, "gpu/memory_total_bytes", source)
    return None if total is None else Limit(total, "device")


def _min_newest(run: Run, key: str, source: Source) -> float | None:
    """Returns the smallest of the newest values of a key on a host, over its ranks and devices."""
    newest = []
    for other, keys in run.sources().items():
        if key in keys and other.host == source.host and other.segment == source.segment:
            values = run.series(key, other.rank, other.segment, other.host, other.device, other.axis).values
            newest += [float(values[-1])] if len(values) and values[-1] > 0 else []
    return min(newest, default=None)


def _why(growth: Growth, limit: Limit | None, ratio: float | None) -> str:
    if growth.per_hour is None:
        return f"too few readings: {growth.readings}"
    if growth.per_hour.low <= 0:
        return "no clear growth"
    if not growth.goes_on:
        return "it grew in one jump, or has stopped growing"
    if limit is None or ratio is None:
        return "it grows, and no limit is known"
    reached = "over" if ratio > MAX_FULL_RATIO else "not over"
    return f"it grows, and is {reached} {MAX_FULL_RATIO:.0%} of the {limit.whose}'s memory by the end"
