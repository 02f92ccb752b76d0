"""Works out how many loader workers would keep up with the steps, and what that would be worth."""

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
"""Workers are not equally quick, so there should be some more than just enough."""

MAX_WORKERS = 16
"""Where batches wait for a disk or a network there may be more workers than processors, up to so many."""

CONTENTION = 1.5
"""How much longer a batch may take where workers get in each other's way; for the lower bound."""


@dataclass(frozen=True)
class Pace:
    """The seconds of a mean step for each of its batches, and how much of that waits for data."""

    step: float
    exposed: float
    """What that would be shorter by without the wait."""
    fetch: float
    """What asking for a batch takes on the host."""
    idle: float | None = None
    """The share of time in which the training thread was on no processor; None where that is not known."""
    workers_busy: float | None = None
    """The share of time in which a mean worker was on a processor; None where that is not known."""

    @property
    def rest(self) -> float:
        """The step without the wait."""
        return max(self.step - self.exposed, 1e-9)


@dataclass(frozen=True)
class LoaderPlan:
    """What to set, and what it would give back."""

    workers: int | None
    """How many there are; None where the loader is not PyTorch's."""
    cores: int | None
    """Processors a rank has to itself; None where that is not known."""
    proposed: int | None
    """How many there should be; None where more would not help, or nobody can tell."""
    batch_seconds: float | None
    """What a worker takes for a batch."""
    estimate: Estimate
    is_waiting: bool = False
    """Whether making a batch is mostly waiting, for a disk or a network, and takes no processor."""

    @property
    def fewer(self) -> int | None:
        """How many there should be where there are too many; None where there are not."""
        if self.is_waiting or self.workers is None or self.cores is None or self.workers <= self.cores:
            return None
        return max(self.cores - 1, 1)

    @property
    def is_limited(self) -> bool:
        """Whether the machine has no more processors to give."""
        return self.workers is not None and self.proposed is None


def plan_for(pace: Pace, loader: Mapping[str, Any] | None, cores: int | None) -> LoaderPlan:
    """Plans workers for a step that waits for data.

    Without workers a batch takes what is waited for it. With some, all are busy while a step waits, so that a
    batch takes one of them as long as so many steps.
    """
    most = pace.exposed / pace.step
    workers = None if loader is None else loader.get("num_workers")
    if not isinstance(workers, int):
        return LoaderPlan(None, cores, None, None, Estimate(0.0, 0.5 * most, most))
    batch = workers * pace.step if workers else max(pace.fetch, pace.exposed)
    needed = max(ceil(HEADROOM * batch / pace.rest), workers + 1)
    is_waiting = _is_waiting(pace, workers)
    if is_waiting:
        needed = min(needed, MAX_WORKERS)
    elif cores is not None:
        needed = min(needed, max(cores - 1, 1))
    if needed <= workers:
        return LoaderPlan(workers, cores, None, batch, Estimate(0.0, 0.25 * most, most), is_waiting)
    low, likely = (
        max(1 - max(pace.rest, factor * batch / needed) / pace.step, 0.0) for factor in (CONTENTION, 1.0)
    )
    return LoaderPlan(workers, cores, needed, batch, Estimate(low, likely, most), is_waiting)


def _is_waiting(pace: Pace, workers: int) -> bool:
    """Whether a batch takes little processor time: by what its workers use, or the thread that makes it."""
    if workers:
        return pace.workers_busy is not None and pace.workers_busy < 0.5
    return pace.idle is not None and pace.idle * pace.step >= 0.5 * pace.exposed


def loader_of(window: Window, rank: int) -> Mapping[str, Any] | None:
    """How the training loader of a rank is set up: the newest of the dataset that was met first."""
    events = window.events_of("loader", rank)
    if not events:
        return None
    first = events[0].fields.get("dataset")
    return next(one.fields for one in reversed(events) if one.fields.get("dataset") == first)


def cores_for(window: Window, rank: RankWindow) -> int | None:
    """Processors that a rank has to itself: those it may use, divided among the ranks of its host."""
    facts = window.facts.get(rank.rank, {})
    figures = window.figures(USABLE_CORES, rank.host, rank.rank)
    cores = float(figures[0].values[-1]) if figures else facts.get("cpus")
    if not isinstance(cores, int | float):
        return None
    told = facts.get("environment", {}).get("LOCAL_WORLD_SIZE", "")
    together = int(told) if str(told).isdecimal() else sum(one.host == rank.host for one in window.ranks)
    return max(int(cores) // max(together, 1), 1)
