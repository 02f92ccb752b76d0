"""Reads the size of a GPU's memory, and the allocator's figures of a rank over the whole segment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from stepscope.analysis.leak_finding import CERTAIN_AFTER_S, SOON_S
from stepscope.analysis.memory_growth import DEVICE_LIMITS

if TYPE_CHECKING:
    from stepscope.schema.finding import Severity
    from stepscope.schema.window import Floats, RankWindow, Window

SETUP_EVENT = "census"

_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")


def capacity_of(rank: RankWindow, window: Window) -> float | None:
    """Returns the size of the memory of a rank's GPU; None if it is not known."""
    for event in reversed(window.events_of(SETUP_EVENT, rank.rank)):
        for device in event.fields.get("devices", ()):
            if device.get("total_bytes"):
                return float(device["total_bytes"])
    sizes = [float(figures.values[-1]) for key in DEVICE_LIMITS for figures in window.figures(key, rank.host)]
    return min(sizes, default=None)


def series_of(
    rank: RankWindow, key: str, part: Literal["minimum", "maximum"]
) -> tuple[Floats, Floats, Floats]:
    """Returns steps, times and values of a key over the whole segment; of buckets, one extreme."""
    course = rank.course.get(key)
    if course is not None:
        return course.starts.astype(np.float64), course.times, getattr(course, part)
    if key not in rank.columns:
        return np.empty(0), np.empty(0), np.empty(0)
    chosen = rank.where(key, steady=False)
    return rank.steps[chosen].astype(np.float64), rank.times[chosen], rank.columns[key].values[chosen]


def urgency(left_s: float, observed_s: float) -> Severity:
    """Returns how much it matters that memory will be full in a time; short growth may be a cache."""
    if observed_s < CERTAIN_AFTER_S:
        return "warning" if left_s <= CERTAIN_AFTER_S else "notice"
    return "critical" if left_s <= SOON_S else "warning"


def uses_expandable_segments(rank: RankWindow, window: Window) -> bool:
    """Whether the allocator may extend its blocks."""
    setups = window.events_of(SETUP_EVENT, rank.rank)
    environment = setups[-1].fields.get("environment") if setups else None
    texts = [str((environment or {}).get(name, "")) for name in _VARIABLES]
    return any("expandable_segments:true" in text.lower().replace(" ", "") for text in texts)
