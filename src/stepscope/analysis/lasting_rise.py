"""Tells whether a loss went up before the newest steps and never came back, by the course of the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from stepscope.analysis.divergence import EXPLODED, FACTOR, FALLEN, FELL, FLAT, PARTS

if TYPE_CHECKING:
    from stepscope.schema.series import Buckets
    from stepscope.schema.window import Floats, Ints

MAX_WIDTH = 1024
"""Buckets of more steps do not tell a jump from a slow rise, which may be healthy."""

BACK = 0.9
"""A loss at this share of the first is back where it began."""

ROSE_WITHIN = 2
"""The loss is at most so many buckets on its way up."""


class LastingRise(NamedTuple):
    """A loss that went up for good."""

    step: int
    """About when, by the first bucket in which it stands high."""
    time: float
    level: float
    """The lowest level before."""
    value: float
    """The level now."""


def lasting_rise(course: Buckets, losses: Floats, steps: Ints, least_level: float) -> LastingRise | None:
    """When the loss left its lowest level for where it began, or far beyond, and stayed until now.

    `losses` are the newest ones. All of them belong to the stretch: else they tell by themselves.
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
    if not has_exploded and (not is_back or _was_there(means[:begin], lowest, value)):
        return None
    return LastingRise(int(starts[begin]), float(times[begin]), level, value)


def _falls(values: Floats) -> bool:
    """Whether the loss came down anywhere, even a little: then it still learns."""
    third = max(len(values) // 3, 1)
    if float(np.median(values[-third:])) < FLAT * float(np.median(values[:third])):
        return True
    if len(values) < PARTS:
        return False
    parts = np.array([np.median(part) for part in np.array_split(values, PARTS)])
    return bool((parts < FELL * np.maximum.accumulate(parts)).any())


def _was_there(before: Floats, lowest: int, value: float) -> bool:
    """Whether the loss has been as high before, once it had come down: then it comes and goes."""
    since = before[int(np.argmax(before <= 0.5 * (before[lowest] + before[0]))) :]
    return bool(len(since) and since.max() >= 0.7 * value)
