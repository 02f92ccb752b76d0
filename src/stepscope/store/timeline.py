"""Finds the training step that was in progress at a time, to plot machine metrics over steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from stepscope.schema.series import Selection
from stepscope.store import rollup

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from stepscope.schema.series import Buckets, Points, Source
    from stepscope.store.base import Reader

MAX_EXACT = 1_000_000
"""A run with more records is joined by buckets of steps, which is exact only at their edges."""

BUCKETS = 65_536


@dataclass(frozen=True)
class Timeline:
    """When the steps of a segment were logged, in order of time."""

    times_ns: NDArray[np.int64]
    steps: NDArray[np.int64]

    def steps_at(self, times_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """The step in progress at each time: the next to be logged, or the last of all."""
        if len(self.steps) == 0:
            return np.zeros(len(times_ns), np.int64)
        after = np.searchsorted(self.times_ns, times_ns, side="left")
        return self.steps[np.minimum(after, len(self.steps) - 1)]


def read_timeline(reader: Reader, run_id: str, segment: str) -> Timeline:
    """The steps of a segment as its first rank logged them, from the key it logged most often."""
    selection = _densest(reader, run_id, segment)
    if selection is None:
        return Timeline(np.empty(0, np.int64), np.empty(0, np.int64))
    buckets = reader.buckets(selection, BUCKETS)
    if buckets.count.sum() > MAX_EXACT:
        times_ns = (buckets.times * 1e9).astype(np.int64)
        return _in_order(times_ns, buckets.starts + buckets.width - 1)
    points = reader.points(selection)
    return _in_order(points.times_ns, points.steps)


def bucket_by_step(points: Points, most: int, low: int | None, high: int | None) -> Buckets:
    """Points in at most `most` buckets of steps, whatever axis they were stored on."""
    steps = points.steps
    inside = np.ones(len(steps), bool)
    if low is not None:
        inside &= steps >= low
    if high is not None:
        inside &= steps <= high
    steps = steps[inside]
    if len(steps) == 0:
        return rollup.as_buckets(None, 0)
    exponent = rollup.exponent_for(int(steps.min()), int(steps.max()), most)
    rolled = rollup.roll_up(steps, points.times_ns[inside], points.values[inside, None], exponent)
    return rollup.as_buckets(rolled, exponent)


def _densest(reader: Reader, run_id: str, segment: str) -> Selection | None:
    logged = {info.key: info.points for info in reader.keys(run_id)}
    ranks: list[tuple[Source, list[str]]] = [
        (source, keys)
        for source, keys in reader.sources(run_id).items()
        if source.segment == segment and source.axis == "step" and source.device == ""
    ]
    if not ranks:
        return None
    source, keys = min(ranks, key=lambda rank: (rank[0].rank or 0, rank[0].host))
    key = max(keys, key=lambda name: logged[name])
    return Selection(run_id, key, segment, source.rank, source.host, source.device, "step")


def _in_order(times_ns: NDArray[np.int64], steps: NDArray[np.int64]) -> Timeline:
    order = np.argsort(times_ns, kind="stable")
    return Timeline(times_ns[order], steps[order])
