"""Finds the step that a run was training at a time: the one place that decides it.

The step in progress at a time is the next one that the first rank of the segment logged, or its last step.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from stepscope.schema.run import segments_of
from stepscope.schema.series import Selection

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from stepscope.schema.run import SegmentInfo
    from stepscope.store.base import Counter, Reader

    Ints = NDArray[np.int64]

NEWEST_ROWS = 4096
"""Read first: times of the last seconds, as the live feed asks for them, need no more."""

MAX_EXACT = 1_000_000
"""Further back than this many records, times are placed by buckets of steps, exact only at their edges."""

BUCKETS = 65_536


@dataclass(frozen=True)
class Timeline:
    """When the steps of a segment were logged, in order of time."""

    times_ns: Ints
    steps: Ints
    since_ns: int | None = None
    """It is complete from this time on; None where it is complete."""

    def steps_at(self, times_ns: Ints) -> Ints:
        """The step in progress at each time; 0 where none was logged."""
        if len(self.steps) == 0:
            return np.zeros(len(times_ns), np.int64)
        after = np.searchsorted(self.times_ns, times_ns, side="left")
        return self.steps[np.minimum(after, len(self.steps) - 1)]


class StepClock:
    """Finds the steps of one run; reads the timeline of a segment on first use, and only as far as needed."""

    def __init__(self, reader: Reader, run_id: str, counters: list[Counter] | None = None) -> None:
        self._reader, self._run_id, self._known_counters = reader, run_id, counters
        self._timelines: dict[str, Timeline] = {}

    def steps_at(self, times_ns: Ints) -> Ints:
        """The step in progress at each time, in the segment that ran then; 0 where none was logged."""
        steps = np.zeros(len(times_ns), np.int64)
        owners = np.searchsorted([part.started_ns for part in self._segments], times_ns, side="right") - 1
        for number, part in enumerate(self._segments):
            here = owners == number
            if here.any():
                times_here = times_ns[here]
                steps[here] = self._timeline(part.id, int(times_here.min())).steps_at(times_here)
        return steps

    def first_step(self, segment: str) -> int | None:
        """The first step of a segment; None where it logged none."""
        steps = self._timeline(segment, None).steps
        return int(steps.min()) if len(steps) else None

    @property
    def has_steps(self) -> bool:
        """Whether the run has logged any step."""
        return any(counter.source.axis == "step" for counter in self._counters)

    @functools.cached_property
    def _segments(self) -> tuple[SegmentInfo, ...]:
        return segments_of(self._reader.processes(self._run_id))

    @functools.cached_property
    def _counters(self) -> list[Counter]:
        known = self._known_counters
        return self._reader.counters(self._run_id) if known is None else known

    def _timeline(self, segment: str, since_ns: int | None) -> Timeline:
        timeline = self._timelines.get(segment)
        if timeline is None or _begins_after(timeline, since_ns):
            timeline = read_timeline(self._reader, _densest(self._counters, segment), since_ns)
            self._timelines[segment] = timeline
        return timeline


def read_timeline(reader: Reader, logged: Counter | None, since_ns: int | None = None) -> Timeline:
    """The steps of a series, all of them or from a time on."""
    if logged is None:
        return Timeline(np.empty(0, np.int64), np.empty(0, np.int64))
    source = logged.source
    selection = Selection(
        source.run_id, logged.key, source.segment, source.rank, source.host, source.device, "step"
    )
    if since_ns is not None and logged.points > NEWEST_ROWS:
        points = reader.points_since(selection, logged.points - NEWEST_ROWS)
        newest = _in_order(points.times_ns, points.steps, int(points.times_ns.min()))
        if not _begins_after(newest, since_ns):
            return newest
    if logged.points <= MAX_EXACT:
        points = reader.points(selection)
        return _in_order(points.times_ns, points.steps)
    buckets = reader.buckets(selection, BUCKETS)
    reach = reader.reach(selection)
    last = np.iinfo(np.int64).max if reach is None else reach[1]
    times_ns = (buckets.times * 1e9).astype(np.int64)
    return _in_order(times_ns, np.minimum(buckets.starts + buckets.width - 1, last))


def _densest(counters: list[Counter], segment: str) -> Counter | None:
    """The series that the first rank of a segment logged most often; None where it logged none."""
    logged = [
        counter
        for counter in counters
        if counter.source.segment == segment
        and counter.source.axis == "step"
        and counter.source.device == ""
        and counter.points
    ]
    return min(
        logged,
        key=lambda counter: (counter.source.rank or 0, counter.source.host, -counter.points),
        default=None,
    )


def _begins_after(timeline: Timeline, since_ns: int | None) -> bool:
    return timeline.since_ns is not None and (since_ns is None or since_ns < timeline.since_ns)


def _in_order(times_ns: Ints, steps: Ints, since_ns: int | None = None) -> Timeline:
    order = np.argsort(times_ns, kind="stable")
    return Timeline(times_ns[order], steps[order], since_ns)
