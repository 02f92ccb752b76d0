"""Reads a key step by step; if segments repeated steps, the newest value of each step counts."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from stepscope.schema.keys import STEP_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from stepscope.reading import Run
    from stepscope.views.metrics.series_summaries import SeriesSummaries

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

MAX_POINTS = 1_000_000
"""A longer series is not read whole, only its newest steps."""

MAX_VALUE = 1e150
"""Larger numbers are treated as invalid: their squares and sums would overflow."""

SMALL_RANGE = 8
"""A range smaller than this fraction of a series is read alone, without unpacking the rest."""

MAX_STEPS = 200_000
"""The number of newest steps that are read if there are too many."""


@dataclass(frozen=True)
class StepValues:
    """One finite value for each step, in order of steps."""

    steps: Ints
    values: Floats
    find_times: Callable[[], Floats]
    """Reads the times lazily: they take as long to unpack as the rest, and most callers do not need them."""

    def __len__(self) -> int:
        return len(self.steps)

    @functools.cached_property
    def times(self) -> Floats:
        """When each value was logged, in seconds since the epoch."""
        return self.find_times()

    def at(self, steps: Ints) -> Floats:
        """Returns the values at some steps; NaN for steps without a value."""
        values = np.full(len(steps), np.nan)
        if len(self.steps):
            positions = np.minimum(np.searchsorted(self.steps, steps), len(self.steps) - 1)
            known = self.steps[positions] == steps
            values[known] = self.values[positions[known]]
        return values

    def held_at(self, steps: Ints) -> Floats:
        """Returns the last value known at each step; before the first value, the first."""
        if not len(self.steps):
            return np.full(len(steps), np.nan)
        positions = np.searchsorted(self.steps, steps, side="right") - 1
        return self.values[np.maximum(positions, 0)]

    def between(self, low: int | None, high: int | None) -> StepValues:
        """Returns the values in a range of steps, both ends included."""
        first = 0 if low is None else int(np.searchsorted(self.steps, low))
        last = len(self.steps) if high is None else int(np.searchsorted(self.steps, high, side="right"))
        if first == 0 and last == len(self.steps):
            return self
        return StepValues(self.steps[first:last], self.values[first:last], lambda: self.times[first:last])


NO_VALUES = StepValues(np.empty(0, np.int64), np.empty(0), lambda: np.empty(0))


def step_values(
    run: Run, key: str, rank: int | None, low: int | None = None, high: int | None = None
) -> StepValues:
    """Returns what a rank, or all ranks if none is given, logged under a key in a range of steps."""
    summaries = [
        summary
        for summary in run.summaries([key])
        if summary.source.axis == "step"
        and not summary.source.device
        and (rank is None or summary.source.rank == rank)
    ]
    if not summaries:
        return NO_VALUES
    count = sum(summary.points for summary in summaries)
    is_small = low is not None and high is not None and high - low < count // SMALL_RANGE
    if count > MAX_POINTS or is_small:
        newest = max(summaries, key=lambda summary: summary.last_ns).last_step or 0
        return _newest(run, key, rank, low, newest if high is None else high)
    points = run.series(key, rank, device="", axis="step")
    indices = _last_finite(points.steps, points.values)
    values = StepValues(points.steps[indices], points.values[indices], lambda: points.times[indices])
    return values.between(low, high)


def step_seconds(
    run: Run, summaries: SeriesSummaries, rank: int, low: int | None = None, high: int | None = None
) -> StepValues:
    """Returns the duration of each step of a rank: its step times, otherwise from logging times."""
    if summaries.logged(STEP_SECONDS, rank):
        return step_values(run, STEP_SECONDS, rank, low, high)
    key = summaries.step_key()
    if key is None or not summaries.logged(key, rank):
        return NO_VALUES
    return _between_logs(run, step_values(run, key, rank, low, high))


def _last_finite(steps: Ints, values: Floats) -> Ints:
    """Returns the indices of the last finite value of each step, in order of steps."""
    usable = np.flatnonzero(np.abs(values) < MAX_VALUE)  # false for NaN and infinity
    chosen = steps[usable]
    if len(chosen) > 1 and not (np.diff(chosen) > 0).all():
        order = np.argsort(chosen, kind="stable")
        is_last = np.r_[chosen[order][1:] != chosen[order][:-1], True]
        usable = usable[order][is_last]
    return usable


def _newest(run: Run, key: str, rank: int | None, low: int | None, high: int) -> StepValues:
    begin = high - MAX_STEPS + 1 if low is None else max(low, high - MAX_STEPS + 1)
    buckets = run.buckets(key, MAX_STEPS, low=begin, high=high, rank=rank, device="", axis="step")
    indices = np.flatnonzero(np.abs(buckets.last) < MAX_VALUE)
    return StepValues(buckets.starts[indices], buckets.last[indices], lambda: buckets.times[indices])


def _between_logs(run: Run, logged: StepValues) -> StepValues:
    """Returns the time between log calls, divided by the steps between them; none across a restart."""
    if len(logged) < 2:
        return NO_VALUES
    begins = np.array([segment.started_ns / 1e9 for segment in run.segments])
    owners = np.searchsorted(begins, logged.times, side="right")
    seconds = np.diff(logged.times) / np.diff(logged.steps)
    indices = np.flatnonzero((seconds > 0) & (owners[1:] == owners[:-1]))
    return StepValues(logged.steps[1:][indices], seconds[indices], lambda: logged.times[1:][indices])
