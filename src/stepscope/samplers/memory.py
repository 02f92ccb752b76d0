"""Polls the memory of the host and of the control group of a training."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.devices.host.cgroup import Groups, group_memory, memory_events, memory_limits
from stepscope.devices.host.kernel_files import drop_none
from stepscope.devices.host.memory import HostMemory, host_memory, paging_counts
from stepscope.devices.host.mounts import space
from stepscope.devices.host.pressure import Pressure
from stepscope.devices.rates import HostRates
from stepscope.procfs import PROC
from stepscope.samplers.base import Sampler
from stepscope.schema.sample import Metric, Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from stepscope.devices.host.cgroup import Group
    from stepscope.schema.sample import Watched

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - it is measured, nothing is kept there

_NEAREST = "memory/nearest_limit_used_ratio"


class MemorySampler(Sampler):
    """Memory of the host.

    Usage and limits of a control group belong to the host when the agent is in the same group, else to the
    process whose group it is.
    """

    metrics = (
        Metric("memory/total_bytes", "Memory the host has."),
        Metric("memory/available_bytes", "Memory a program can still allocate without swapping."),
        Metric("memory/used_bytes", "Memory a program cannot allocate: the total without what is available."),
        Metric("memory/used_ratio", "Used memory as a share of the total."),
        Metric("memory/page_cache_bytes", "Files cached in memory; they are dropped when memory is needed."),
        Metric("memory/shared_bytes", "Memory that processes share, such as batches of loader workers."),
        Metric("memory/unwritten_bytes", "Data written to files that has not reached the disk."),
        Metric("memory/swap_used_bytes", "Memory that was moved to a disk."),
        Metric("memory/swap_in_bytes_per_second", "Memory read back from swap."),
        Metric("memory/swap_out_bytes_per_second", "Memory being swapped out."),
        Metric(
            "memory/major_faults_per_second",
            "Pages that programs waited for until they were read from a disk.",
        ),
        Metric("memory/pressure_some_ratio", "Share of time in which some thread waited for memory."),
        Metric("memory/pressure_full_ratio", "Share of time in which all threads waited for memory."),
        Metric("memory/shm_used_bytes", "Used space of /dev/shm: loader workers pass batches through it."),
        Metric("memory/shm_total_bytes", "Size of /dev/shm; a container often allows 64 MiB."),
        Metric("memory/shm_used_ratio", "How full /dev/shm is; at 1 loader workers die of a bus error."),
        Metric("memory/cgroup_limit_bytes", "Memory the control group may use; the tightest limit on it."),
        Metric(
            "memory/cgroup_used_bytes", "Memory of the group that sets this limit, including cached files."
        ),
        Metric(
            "memory/cgroup_used_ratio",
            "That memory as a share of the limit; cached files alone may bring it near 1.",
        ),
        Metric("memory/cgroup_working_set_bytes", "That memory without cached files that can be dropped."),
        Metric(
            "memory/cgroup_working_set_ratio", "That part as a share of the limit; at 1 a process is killed."
        ),
        Metric(
            "memory/cgroup_high_events_total",
            "Times the group was slowed because it exceeded its soft limit.",
        ),
        Metric("memory/cgroup_max_events_total", "Times the group reached its limit and had to free memory."),
        Metric(
            "memory/cgroup_oom_events_total", "Times the group reached its limit and could not free memory."
        ),
        Metric(
            "memory/cgroup_oom_kills_total",
            "Processes of the group that were killed because it ran out of memory.",
        ),
        Metric(
            _NEAREST,
            "How near memory is to running out: the highest of the used ratio of the host and the working "
            "set ratio of every control group around the training that has a limit.",
        ),
    )

    def __init__(
        self,
        *,
        _proc: Path = PROC,
        _shm: Path = SHARED_MEMORY,
        _now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._proc, self._shm = _proc, _shm
        self._paging = HostRates(_now)
        self._pressure = Pressure("memory", _proc, _now)
        self._groups = Groups("memory", _proc, _now)

    def sample(self, watched: Sequence[Watched]) -> Iterator[Sample]:
        """Reads the host's memory, and the control group of every watched process."""
        host = host_memory(self._proc)
        used_ratio = None if host is None else host.used_bytes / host.total_bytes
        nearest = drop_none({_NEAREST: used_ratio})
        for owner, group in self._groups.by_owner(watched):
            values = _group_values(group, used_ratio)
            if owner is None:
                nearest = {}
            if values:
                yield Sample(values, owner=owner)
        values = {**_host_values(host), **nearest, **self._paging_values(), **self._shm_values()}
        if values:
            yield Sample(values)

    def _paging_values(self) -> dict[str, float]:
        rates, stalled = self._paging.since_last(paging_counts(self._proc)), self._pressure.since_last()
        return drop_none(
            {
                "memory/swap_in_bytes_per_second": rates.get("swapped_in"),
                "memory/swap_out_bytes_per_second": rates.get("swapped_out"),
                "memory/major_faults_per_second": rates.get("major_faults"),
                "memory/pressure_some_ratio": stalled.get("some"),
                "memory/pressure_full_ratio": stalled.get("full"),
            }
        )

    def _shm_values(self) -> dict[str, float]:
        usage = space(self._shm)
        if usage is None:
            return {}
        return {
            "memory/shm_used_bytes": float(usage.total_bytes - usage.free_bytes),
            "memory/shm_total_bytes": float(usage.total_bytes),
            "memory/shm_used_ratio": usage.used_ratio,
        }


def _host_values(host: HostMemory | None) -> dict[str, float]:
    if host is None:
        return {}
    return {
        "memory/total_bytes": float(host.total_bytes),
        "memory/available_bytes": float(host.available_bytes),
        "memory/used_bytes": float(host.used_bytes),
        "memory/used_ratio": host.used_bytes / host.total_bytes,
        "memory/page_cache_bytes": float(host.page_cache_bytes),
        "memory/shared_bytes": float(host.shared_bytes),
        "memory/unwritten_bytes": float(host.unwritten_bytes),
        "memory/swap_used_bytes": float(host.swap_used_bytes),
    }


def _group_values(group: Group, host_used_ratio: float | None) -> dict[str, float]:
    """The metrics of the group that sets the tightest limit, or of the process's own group without one."""
    limits = memory_limits(group)
    level, limit = limits[0] if limits else (group.levels[0], None)
    levels = (level, *(limited.level for limited in limits))
    memory_by_level = {name: group_memory(name, group.version) for name in levels}
    working = [
        memory.working_set_bytes / limited.limit_bytes
        for limited in limits
        if (memory := memory_by_level[limited.level]) is not None and memory.working_set_bytes is not None
    ]
    tightest = memory_by_level[level]
    used = tightest and tightest.used_bytes
    working_set = tightest and tightest.working_set_bytes
    ratios = [*working, *([] if host_used_ratio is None else [host_used_ratio])]
    events = memory_events(level, group.version)
    return drop_none(
        {
            "memory/cgroup_limit_bytes": limit,
            "memory/cgroup_used_bytes": used,
            "memory/cgroup_used_ratio": None if used is None or limit is None else used / limit,
            "memory/cgroup_working_set_bytes": working_set,
            "memory/cgroup_working_set_ratio": None
            if working_set is None or limit is None
            else working_set / limit,
            "memory/cgroup_high_events_total": events.get("high"),
            "memory/cgroup_max_events_total": events.get("max"),
            "memory/cgroup_oom_events_total": events.get("oom"),
            "memory/cgroup_oom_kills_total": events.get("oom_kill"),
            _NEAREST: max(ratios, default=None),
        }
    )
