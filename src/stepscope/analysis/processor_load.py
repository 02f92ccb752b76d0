"""Reads how long the training thread waits for a processor, and who keeps the processors busy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from stepscope.analysis.loader_plan import USABLE_CORES, cores_for, loader_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepscope.schema.window import Floats, RankWindow, Window

QUEUED, QUEUED_RATIO = "host/queued_seconds", "process/queued_ratio"
OWN_CPU, CPU_USE = "process/cpu_ratio", "cpu/utilization_ratio"
GPU_MEMORY, GPU_BUSY = "gpu/process_memory_bytes", "gpu/utilization_ratio"
LOAD_KEYS = (QUEUED, QUEUED_RATIO, OWN_CPU, CPU_USE, USABLE_CORES, GPU_MEMORY, GPU_BUSY)

FULL = 0.7
"""Threads compete for processors that are in use for this share of the time."""

SETUP_EVENT = "census"
LOAD_EVENTS = (SETUP_EVENT, "loader")


class ProcessorLoad(NamedTuple):
    """What competes for the processors of a rank."""

    cores: int
    """Processors of the rank: those it may use, divided by the number of ranks on its host."""
    ranks: int
    """Ranks on its host that were recorded."""
    threads: int
    """Threads of one operation of PyTorch."""
    workers: int
    own: float | None
    """Processors that all ranks on the host keep busy together, with their workers; None if unknown."""
    others: float | None
    """Processors that other programs keep busy; None if unknown."""

    @property
    def are_busy(self) -> bool:
        """Whether the processors of all ranks are in use most of the time, as far as that is known."""
        return self.own is None or self.own + (self.others or 0.0) >= FULL * self.cores * self.ranks

    @property
    def others_share(self) -> float:
        """The share of all processor time in use that other programs take; 0 if unknown."""
        if self.own is None or self.others is None:
            return 0.0
        return self.others / max(self.own + self.others, 1e-9)


def queued_shares(rank: RankWindow, window: Window) -> Floats:
    """Returns the share of time in which the training thread waited for a processor, for each reading.

    The thread reads it itself, and the agent reads it of the first thread of the process; whichever was read
    more often is used.
    """
    own = _read_by_thread(rank)
    by_agent = [figures.values for figures in window.figures(QUEUED_RATIO, rank.host, rank.rank)]
    return max((own, *by_agent), key=len)


def waiting_share(rank: RankWindow, window: Window) -> float:
    """Returns the mean share of time in which the training thread waited for a processor; 0 if unknown.

    A single reading is enough: it is a sum over all steps since the one before.
    """
    shares = queued_shares(rank, window)
    if not len(shares):
        shares = _read_by_thread(rank, is_begun_in_warm_up=True)
    return float(shares.mean()) if len(shares) else 0.0


def processor_load(rank: RankWindow, window: Window) -> ProcessorLoad | None:
    """Returns what competes for the processors of a rank; None if their number is unknown."""
    cores = cores_for(window, rank)
    if cores is None:
        return None
    setups = window.events_of(SETUP_EVENT, rank.rank)
    threads = _count(setups[-1].fields if setups else {}, "threads")
    workers = _count(loader_of(window, rank.rank) or {}, "num_workers")
    busy = [float(figures.values.mean()) for figures in window.figures(OWN_CPU, rank.host)]
    own = sum(busy) if busy else None
    ranks = sum(other.host == rank.host for other in window.ranks)
    return ProcessorLoad(cores, ranks, max(threads, 1), workers, own, _others(rank, window, own))


def waits_are_hidden(rank: RankWindow, window: Window, share: float) -> bool:
    """Whether a GPU was busy while the training thread waited, so that the wait cost nothing."""
    if not any(figures.values.max() > 0 for figures in window.figures(GPU_MEMORY, rank.host, rank.rank)):
        return False
    busy = [float(figures.values.mean()) for figures in window.figures(GPU_BUSY, rank.host)]
    return not busy or min(busy) > 1 - 0.5 * share


def _read_by_thread(rank: RankWindow, *, is_begun_in_warm_up: bool = False) -> Floats:
    """Returns its own readings; each is the mean of the steps since the one before."""
    if QUEUED not in rank.columns:
        return np.empty(0)
    places = np.flatnonzero(rank.where(QUEUED, steady=not is_begun_in_warm_up))
    passed = np.diff(rank.times[places])
    queued = rank.columns[QUEUED].values[places][1:] * np.diff(places)
    shares: Floats = np.minimum(queued[passed > 0] / passed[passed > 0], 1.0)
    return shares


def _others(rank: RankWindow, window: Window, own: float | None) -> float | None:
    """Returns the processors that other programs keep busy, where this run may use all of the machine's."""
    in_machine = window.facts.get(rank.rank, {}).get("cpus")
    usable = window.figures(USABLE_CORES, rank.host, rank.rank)
    used = [float(figures.values.mean()) for figures in window.figures(CPU_USE, rank.host)]
    if own is None or not used or not isinstance(in_machine, int):
        return None
    if usable and float(usable[0].values[-1]) < in_machine:
        return None
    return max(max(used) * in_machine - own, 0.0)


def _count(fields: Mapping[str, Any], name: str) -> int:
    count = fields.get(name)
    return count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else 0
