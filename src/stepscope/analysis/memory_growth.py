"""Decides whether memory grows without end, how fast, and when it will be full."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from stepscope.analysis.robust import block_edges, block_medians, block_quantiles
from stepscope.analysis.trends import is_line, slope_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from stepscope.analysis.trends import Slope
    from stepscope.schema.window import MachineFigures

    Floats = NDArray[np.float64]

MAX_FULL_RATIO = 0.8
"""Memory counts as full at this share of its limit, which leaves room for short peaks."""

MIN_READINGS = 30
"""Minimum number of readings after the first part for a verdict."""

DAY_S = 86_400.0

MAX_BLOCKS = 200
"""A longer series is cut into this many blocks: the number of pairs of points grows quadratically."""

PROCESS_KEYS = ("process/uss_bytes", "process/rss_bytes")
"""Memory of a process: its own, or including what it shares. The first that was recorded is judged."""

ALLOCATED = "memory/allocated_bytes"
"""Memory of a GPU that is in use by tensors of a rank."""

HOST_LIMITS = {"memory/total_bytes": "host", "memory/cgroup_limit_bytes": "container"}
DEVICE_LIMITS = {"gpu/memory_total_bytes": "device"}
LIMIT_KEYS = (*HOST_LIMITS, *DEVICE_LIMITS)

_FIRST_PARTS = (0.1, 0.2, 0.3, 0.4, 0.5)
"""Shares of a series that may be left out, because caches and pools fill in the beginning."""


@dataclass(frozen=True)
class Limit:
    """A memory limit, and what sets it: host, container or device."""

    limit_bytes: float
    whose: str


@dataclass(frozen=True)
class Growth:
    """How a memory series grows after its first part, in which caches fill."""

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


def limit_of(key: str, totals: Mapping[str, float]) -> Limit | None:
    """Returns the lowest limit of a memory series; `totals` has sizes by the keys in `LIMIT_KEYS`."""
    whose = HOST_LIMITS if key.startswith("process/") else DEVICE_LIMITS
    limits = [Limit(totals[name], owner) for name, owner in whose.items() if totals.get(name, 0.0) > 0]
    return min(limits, key=lambda limit: limit.limit_bytes, default=None)


def horizon_s(age_s: float, remaining_s: float | None) -> float:
    """Returns how long a live run will go on: another day, or as long again, if that is not known."""
    return max(DAY_S, age_s) if remaining_s is None else remaining_s


def growth_of(times: Floats, values: Floats, steps: Floats | None = None) -> Growth:
    """Returns how a series grows; times are in seconds, values in bytes."""
    finite = np.isfinite(values)
    seconds = times[finite] - (times[finite][0] if finite.any() else 0.0)
    axis = seconds if steps is None else steps[finite]
    if len(seconds):
        edges = block_edges(len(seconds), MAX_BLOCKS, 1)
        # Spikes have little effect on the lower quartile.
        used = block_quantiles(values[finite], edges, 0.25)
        seconds, axis = block_medians(seconds, edges), block_medians(axis, edges)
    else:
        used = seconds
    start = _begin_of_steady_growth(seconds, used)
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
    series: MachineFigures, growth: Growth, limit: Limit | None, remaining_s: float
) -> LeakVerdict:
    """Returns a verdict that compares the growth with the free memory; `series` says whose memory it is."""
    per_s = growth.per_hour.value / 3600.0 if growth.per_hour is not None and growth.goes_on else 0.0
    room_s = ratio = None
    if limit is not None:
        room_s = max(limit.limit_bytes - growth.level_bytes, 0.0) / per_s if per_s > 0 else None
        ratio = (growth.level_bytes + per_s * remaining_s) / limit.limit_bytes
    is_leak: bool | None = growth.goes_on
    if growth.goes_on:
        is_leak = None if ratio is None else ratio > MAX_FULL_RATIO
    return LeakVerdict(
        key=series.key,
        rank=series.rank,
        host=series.host,
        device=series.device,
        growth=growth,
        limit=limit,
        seconds_to_limit=room_s,
        projected_ratio=ratio,
        horizon_seconds=remaining_s,
        is_leak=is_leak,
        why=_why(growth, limit, ratio),
    )


def _begin_of_steady_growth(x: Floats, y: Floats) -> int:
    """Returns where both halves of the rest begin to grow alike; the middle if they never do."""
    for share in _FIRST_PARTS:
        start = int(len(y) * share)
        middle = (start + len(y)) // 2
        if middle - start < MIN_READINGS // 2:
            break
        early, late = slope_of(x[start:middle], y[start:middle]), slope_of(x[middle:], y[middle:])
        if early is not None and late is not None and early.agrees_with(late):
            return start
    return int(len(y) * _FIRST_PARTS[0 if len(y) < 2 * MIN_READINGS else -1])


def _is_steady(x: Floats, y: Floats) -> bool:
    """Returns whether the growth is neither a jump nor slowing down."""
    middle = len(y) // 2
    early, late = slope_of(x[:middle], y[:middle]), slope_of(x[middle:], y[middle:])
    if early is None or late is None:
        return False
    slows_down = late.value < early.value and not late.agrees_with(early)
    return not slows_down and is_line(x, y)


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
