"""Computes how many loader workers would keep up with the steps, and how much time that would save."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

from stepscope.schema.finding import Estimate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepscope.schema.window import RankWindow, Window

USABLE_CORES = "process/usable_cores"

HEADROOM = 1.2
"""Workers differ in speed, so a few more are proposed than the average speed requires."""

MAX_WORKERS = 16
"""Maximum number of workers where batches wait for a disk or a network and need few processors."""

CONTENTION = 1.5
"""How much longer a batch may take when workers compete for processors; gives the lower bound."""


@dataclass(frozen=True)
class BatchTimes:
    """Mean seconds of a step for each of its batches, and how much of that is waiting for data."""

    step: float
    exposed: float
    """How much shorter the step would be without the wait."""
    fetch: float
    """How long fetching a batch takes on the host."""
    idle: float | None = None
    """The share of time in which the training thread was on no processor; None if unknown."""
    workers_busy: float | None = None
    """The share of time in which a mean worker was on a processor; None if unknown."""

    @property
    def rest(self) -> float:
        """The step without the wait."""
        return max(self.step - self.exposed, 1e-9)


@dataclass(frozen=True)
class LoaderPlan:
    """How many workers to use, and the time that would save."""

    workers: int | None
    """The current number of workers; None if the loader is not PyTorch's."""
    cores: int | None
    """Processors that a rank has for itself; None if unknown."""
    proposed: int | None
    """The proposed number of workers; None if more would not help or their effect is unknown."""
    batch_seconds: float | None
    """How long a worker takes for a batch."""
    estimate: Estimate
    is_waiting: bool = False
    """Whether workers mostly wait for a disk or a network and use little processor time."""

    @property
    def fewer(self) -> int | None:
        """The proposed number if there are too many workers; None otherwise."""
        if self.is_waiting or self.workers is None or self.cores is None or self.workers <= self.cores:
            return None
        return max(self.cores - 1, 1)

    @property
    def is_limited(self) -> bool:
        """Whether more workers would not help on this machine."""
        return self.workers is not None and self.proposed is None


def plan_for(times: BatchTimes, loader: Mapping[str, Any] | None, cores: int | None) -> LoaderPlan:
    """Plans workers for a step that waits for data.

    Without workers, a batch takes as long as the step waits for it. With N workers, all of them are busy
    while a step waits, so that each takes N steps for a batch.
    """
    most = times.exposed / times.step
    workers = None if loader is None else loader.get("num_workers")
    if not isinstance(workers, int):
        return LoaderPlan(None, cores, None, None, Estimate(0.0, 0.5 * most, most))
    batch = workers * times.step if workers else max(times.fetch, times.exposed)
    needed = max(ceil(HEADROOM * batch / times.rest), workers + 1)
    is_waiting = _is_waiting(times, workers)
    if is_waiting:
        needed = min(needed, MAX_WORKERS)
    elif cores is not None:
        needed = min(needed, max(cores - 1, 1))
    if needed <= workers:
        return LoaderPlan(workers, cores, None, batch, Estimate(0.0, 0.25 * most, most), is_waiting)
    low, likely = (
        max(1 - max(times.rest, factor * batch / needed) / times.step, 0.0) for factor in (CONTENTION, 1.0)
    )
    return LoaderPlan(workers, cores, needed, batch, Estimate(low, likely, most), is_waiting)


def _is_waiting(times: BatchTimes, workers: int) -> bool:
    """Whether making a batch needs little processor time, in the workers or in the training thread."""
    if workers:
        return times.workers_busy is not None and times.workers_busy < 0.5
    return times.idle is not None and times.idle * times.step >= 0.5 * times.exposed


def loader_of(window: Window, rank: int) -> Mapping[str, Any] | None:
    """Returns the newest settings of a rank's training loader: that of the dataset that was used first."""
    events = window.events_of("loader", rank)
    if not events:
        return None
    first = events[0].fields.get("dataset")
    return next(event.fields for event in reversed(events) if event.fields.get("dataset") == first)


def cores_for(window: Window, rank: RankWindow) -> int | None:
    """Returns the processors of a rank: those it may use, divided by the number of ranks on its host."""
    facts = window.facts.get(rank.rank, {})
    figures = window.figures(USABLE_CORES, rank.host, rank.rank)
    cores = float(figures[0].values[-1]) if figures else facts.get("cpus")
    if not isinstance(cores, int | float):
        return None
    world_size = facts.get("environment", {}).get("LOCAL_WORLD_SIZE", "")
    if str(world_size).isdecimal():
        local_ranks = int(world_size)
    else:
        local_ranks = sum(other.host == rank.host for other in window.ranks)
    return max(int(cores) // max(local_ranks, 1), 1)
