"""Places series on the other axis, in buckets: logged values by the second, samples by the current step."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from stepscope.store import rollup

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from stepscope.schema.series import Axis, Buckets, Points, Selection
    from stepscope.store.base import Reader
    from stepscope.store.step_clock import StepClock

NS = 1_000_000_000

MAX_POINTS = 65_536
"""A longer series changes its axis in buckets instead of points, `OVERSAMPLING` for each requested one."""

OVERSAMPLING = 4

TICKS_PER_SECOND = 1024
"""Buckets by time start at such fractions: in whole seconds a run of two seconds would be three points."""


class Limits(NamedTuple):
    """How many buckets are requested, and between which steps or seconds."""

    most: int
    low: int | None = None
    high: int | None = None


def buckets_on(reader: Reader, clock: StepClock, selection: Selection, axis: Axis, limits: Limits) -> Buckets:
    """A series in buckets of the axis that is not its own."""
    if reader.count(selection) > MAX_POINTS:
        finer = reader.buckets(selection, OVERSAMPLING * limits.most)
        times_ns = (finer.times * 1e9).astype(np.int64)
        x = times_ns // NS if axis == "seconds" else clock.steps_at(times_ns)
        return _rebucketed(finer, x, limits)
    points = reader.points(selection)
    if axis == "step":
        return bucket_by_step(replace(points, steps=clock.steps_at(points.times_ns)), limits)
    # Seconds and rest apart: nanoseconds since the epoch times the ticks would exceed 64 bits.
    ticks = TICKS_PER_SECOND
    low = None if limits.low is None else limits.low * ticks
    high = None if limits.high is None else limits.high * ticks + ticks - 1
    x = points.times_ns // NS * ticks + points.times_ns % NS * ticks // NS
    fine = bucket_by_step(replace(points, steps=x), Limits(limits.most, low, high))
    return replace(fine, ticks=ticks)


def bucket_by_step(points: Points, limits: Limits) -> Buckets:
    """Points in buckets of steps, whatever axis they were stored on."""
    inside = _inside(points.steps, limits)
    steps = points.steps[inside]
    if len(steps) == 0:
        return rollup.as_buckets(None, 0)
    exponent = rollup.exponent_for(int(steps.min()), int(steps.max()), limits.most)
    rolled = rollup.roll_up(steps, points.times_ns[inside], points.values[inside, None], exponent)
    return rollup.as_buckets(rolled, exponent)


def _rebucketed(buckets: Buckets, x: NDArray[np.int64], limits: Limits) -> Buckets:
    """The same buckets on another axis: each counts where its last point is."""
    inside = _inside(x, limits)
    if not inside.any():
        return rollup.as_buckets(None, 0)
    x = x[inside]
    exponent = rollup.exponent_for(int(x.min()), int(x.max()), limits.most)
    finite = buckets.count - buckets.nonfinite
    total = np.where(finite > 0, buckets.mean * finite, 0.0)
    part = rollup.Rollup(
        exponent=exponent,
        index=x >> exponent,
        count=buckets.count[inside],
        last_ns=(buckets.times[inside] * 1e9).astype(np.int64),
        minimum=buckets.minimum[inside, None],
        maximum=buckets.maximum[inside, None],
        total=total[inside, None],
        last=buckets.last[inside, None],
        nonfinite=buckets.nonfinite[inside, None],
    )
    return rollup.as_buckets(rollup.merge([part], exponent), exponent)


def _inside(x: NDArray[np.int64], limits: Limits) -> NDArray[np.bool_]:
    inside = np.ones(len(x), bool)
    if limits.low is not None:
        inside &= x >= limits.low
    if limits.high is not None:
        inside &= x <= limits.high
    return inside
