"""Detects a loss that rose before the newest steps and never came back, from the course of the whole run."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from stepscope.analysis.loss.divergence import EXPLODED, FACTOR, FALLEN, FELL, FLAT, PARTS

if TYPE_CHECKING:
    from stepscope.schema.series import Buckets
    from stepscope.schema.window import Floats, Ints

MAX_WIDTH = 1024
"""In wider buckets a jump looks the same as a slow rise, which may be healthy."""

BACK = 0.9
"""A loss at this share of the first loss is back where it began."""

ROSE_WITHIN = 2
"""The rise takes at most this many buckets."""


class LastingRise(NamedTuple):
    """A loss that rose and stayed high."""

    step: int
    """The first step of the first bucket in which it is high."""
    time: float
    level: float
    """The lowest level before."""
    value: float
    """The level now."""


def lasting_rise(course: Buckets, losses: Floats, steps: Ints, least_level: float) -> LastingRise | None:
    """Returns when the loss rose from its lowest level to its first level or far above, and stayed there.

    `losses` are the newest ones. Only a rise before all of them counts: `divergence` finds a later one.
    """
    is_finite = np.isfinite(course.mean)
    means, starts, times = course.mean[is_finite], course.starts[is_finite], course.times[is_finite]
    if course.width > MAX_WIDTH or len(means) < PARTS or not len(losses):
        return None
    first, value = float(means[0]), float(np.median(losses))
    lowest = int(np.argmin(means))
    level = float(means[lowest])
    rise = value - level
    if rise <= (FACTOR - 1) * abs(level) or value < least_level:
        return None
    begin = int(np.flatnonzero(means <= level + 0.5 * rise)[-1]) + 1
    near_level = int(np.flatnonzero(means <= level + 0.25 * rise)[-1])
    is_quick = begin - near_level <= ROSE_WITHIN
    is_before = begin < len(means) and int(starts[begin]) + course.width <= int(steps[0])
    if not is_quick or not is_before or _falls(means[begin:]) or _falls(losses):
        return None
    has_exploded = level > 0 and value >= EXPLODED * max(first, level)
    is_back = first - level >= FALLEN * abs(first) and value >= BACK * first
    if not has_exploded and (not is_back or _was_as_high(means[:begin], lowest, value)):
        return None
    return LastingRise(int(starts[begin]), float(times[begin]), level, value)


def _falls(values: Floats) -> bool:
    """Whether the loss fell anywhere, even a little: then it still learns."""
    third = max(len(values) // 3, 1)
    if float(np.median(values[-third:])) < FLAT * float(np.median(values[:third])):
        return True
    if len(values) < PARTS:
        return False
    parts = np.array([np.median(part) for part in np.array_split(values, PARTS)])
    return bool((parts < FELL * np.maximum.accumulate(parts)).any())


def _was_as_high(before: Floats, lowest: int, value: float) -> bool:
    """Whether the loss has been as high before, after it had come down: then it goes up and down."""
    since = before[int(np.argmax(before <= 0.5 * (before[lowest] + before[0]))) :]
    return bool(len(since) and since.max() >= 0.7 * value)
