"""Counts the steps of a run and the samples it was trained on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from stepscope.schema.keys import LOSS_KEYS, STEP_SECONDS
from stepscope.steps.evidence.batch_contents import SAMPLES
from stepscope.views.energy.metering import TimeSpan, from_rate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepscope.reading import Run
    from stepscope.schema.series import Points, Source

STEP_KEYS = (STEP_SECONDS, *LOSS_KEYS)
"""Keys that are logged once a step; the first that a run has is used to count its steps."""

BATCH_SIZE = "batch_size"
SAMPLES_PER_STEP = "samples_per_step"
THROUGHPUT = "throughput"


@dataclass(frozen=True)
class Counted:
    """A count, None if it is not known, with the method behind it or the reason."""

    value: float | None
    how: str


@dataclass(frozen=True)
class Workload:
    """What a run has done; repeated steps count again."""

    steps: Counted
    samples: Counted


def workload_of(run: Run) -> Workload:
    """Returns the steps and samples of all segments together."""
    logged = {known.key: known.points for known in run.keys()}
    key = next((name for name in STEP_KEYS if name in logged), None) or max(
        logged, key=logged.__getitem__, default=None
    )
    if key is None:
        nothing = Counted(None, "nothing was logged")
        return Workload(nothing, nothing)
    steps = {source.segment: _steps(_points(run, key, source)) for source in _first_ranks(run, key)}
    counted = Counted(float(sum(steps.values())), f"the steps of {key}")
    return Workload(counted, _samples(run, logged, steps))


def _steps(points: Points) -> int:
    """Counts the steps of a segment, with the steps between two that were logged."""
    if not len(points):
        return 0
    if (np.diff(points.steps) > 0).all():
        return int(points.steps[-1] - points.steps[0]) + 1
    return len(points)  # step numbers restart, so each logged step counts once


def _samples(run: Run, logged: Mapping[str, int], steps: Mapping[str, int]) -> Counted:
    if BATCH_SIZE in logged:
        counts = [_per_step(run, BATCH_SIZE, source, steps) for source in _places(run, BATCH_SIZE)]
        return Counted(sum(counts), f"the {BATCH_SIZE} of every rank that logged it, over all steps")
    if SAMPLES_PER_STEP in logged:
        counts = [
            _per_step(run, SAMPLES_PER_STEP, source, steps) for source in _first_ranks(run, SAMPLES_PER_STEP)
        ]
        return Counted(sum(counts), f"{SAMPLES_PER_STEP}, over all steps")
    if SAMPLES in logged:
        counts = [_per_step(run, SAMPLES, source, steps) for source in _places(run, SAMPLES)]
        return Counted(sum(counts), "the sampled batches of every rank, over all steps")
    if THROUGHPUT in logged:
        counts = [_over_time(_points(run, THROUGHPUT, source)) for source in _first_ranks(run, THROUGHPUT)]
        return Counted(sum(counts), f"{THROUGHPUT}, taken as samples per second, over the time it was logged")
    return Counted(None, f"log {BATCH_SIZE}, {SAMPLES_PER_STEP} or {THROUGHPUT} to count them")


def _per_step(run: Run, key: str, source: Source, steps: Mapping[str, int]) -> float:
    """Adds up a key over the steps of a segment; a rarely logged size applies to the steps between."""
    values = _points(run, key, source).values
    values = values[np.isfinite(values)]
    if not len(values):
        return 0.0
    return float(values.sum()) * max(steps.get(source.segment, 0) / len(values), 1.0)


def _over_time(points: Points) -> float:
    if len(points) < 2:
        return 0.0
    times_ns = points.times_ns
    return from_rate(times_ns, points.values, TimeSpan(int(times_ns.min()), int(times_ns.max()))).amount


def _places(run: Run, key: str) -> list[Source]:
    """Returns the sources that logged a key."""
    return [source for source, keys in run.sources().items() if source.axis == "step" and key in keys]


def _first_ranks(run: Run, key: str) -> list[Source]:
    """Returns the source with the lowest rank in each segment; the other ranks do the same steps."""
    first_sources: dict[str, Source] = {}
    for source in _places(run, key):
        best = first_sources.get(source.segment)
        if best is None or _order(source) < _order(best):
            first_sources[source.segment] = source
    return list(first_sources.values())


def _order(source: Source) -> tuple[int, str, str]:
    return source.rank or 0, source.device, source.host


def _points(run: Run, key: str, source: Source) -> Points:
    return run.series(key, source.rank, source.segment, source.host, source.device)
