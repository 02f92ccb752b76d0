"""Reads the control group of a process and its parents: limits, usage, and how often they throttle it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from stepscope.devices.host.kernel_files import named_numbers, number_named, read_number, read_text
from stepscope.devices.host.mounts import Mount, mounts
from stepscope.devices.interval import Interval
from stepscope.procfs import PROC

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stepscope.schema.sample import Watched

Controller = Literal["cpu", "memory"]

REFRESH_S = 10.0
"""How often groups are looked up again: a scheduler may move a process, or change its limits."""


class Group(NamedTuple):
    """A control group: its folder and its parents, up to the outermost visible one."""

    version: int
    levels: tuple[str, ...]
    """Its own folder first."""


class Groups:
    """The groups of the watched processes and of this process, refreshed at intervals."""

    def __init__(
        self, controller: Controller, proc: Path = PROC, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._controller, self._proc = controller, proc
        self._interval = Interval(REFRESH_S, now)
        self._hierarchies: list[Mount] = []
        self._known: dict[str, Group | None] = {}

    def by_owner(self, watched: Sequence[Watched]) -> list[tuple[Watched | None, Group]]:
        """Each group once with its owner; None for the group of this process.

        A training and its agent usually share one group, and so do all ranks of a host: the group's metrics
        are then those of the host, not repeated for every rank.
        """
        if self._interval.is_due():
            self._known, self._hierarchies = {}, hierarchies(self._proc)
        own = self._group_of("self")
        groups = [(process, self._group_of(str(process.pid)) or own) for process in watched]
        others = [(process, group) for process, group in groups if group is not None and group != own]
        if own is None or (groups and len(others) == len(groups)):
            return list(others)
        return [(None, own), *others]

    def _group_of(self, process: str) -> Group | None:
        if process not in self._known:
            self._known[process] = group_of(process, self._controller, self._hierarchies, self._proc)
        return self._known[process]


def hierarchies(proc: Path = PROC) -> list[Mount]:
    """Where the control groups of this system are mounted: one tree, or one for each controller."""
    return [mount for mount in mounts(proc) if mount.kind in ("cgroup", "cgroup2")]


def group_of(
    process: str, controller: Controller, mounted: Sequence[Mount], proc: Path = PROC
) -> Group | None:
    """The group of a process (its number, or `self`); None where no visible group has it."""
    lines = (read_text(f"{proc}/{process}/cgroup") or "").splitlines()
    memberships = [line.split(":", 2) for line in lines if line.count(":") >= 2]
    # A system may mount versions 1 and 2; the controller is in version 1 if that names it.
    for _, controllers, path in memberships:
        mount = _mounted(controller, mounted) if controller in controllers.split(",") else None
        if mount is not None:
            return Group(1, _levels(path, mount))
    unified = next((mount for mount in mounted if mount.kind == "cgroup2"), None)
    for number, _, path in memberships:
        if number == "0" and unified is not None:
            return Group(2, _levels(path, unified))
    return None


def _mounted(controller: Controller, mounted: Sequence[Mount]) -> Mount | None:
    fitting = (mount for mount in mounted if mount.kind == "cgroup" and controller in mount.options)
    return next(fitting, None)


def _levels(path: str, mount: Mount) -> tuple[str, ...]:
    """The folders of a group and of its parents.

    A container sees its own group as the outermost one. Where it gets the path on the host, that path starts
    with the mounted folder, or does not exist in the container.
    """
    top = Path(mount.point)
    root = mount.root.rstrip("/")
    inner = path[len(root) :] if path == root or path.startswith(f"{root}/") else path
    parts = [part for part in inner.split("/") if part]
    if ".." in parts or not top.joinpath(*parts).is_dir():
        return (str(top),)
    return tuple(str(top.joinpath(*parts[:depth])) for depth in range(len(parts), -1, -1))


class CpuLimit(NamedTuple):
    """A limit on processor time, and the folder of the group that sets it."""

    level: str
    cores: float


def cpu_limits(group: Group) -> list[CpuLimit]:
    """All limits that apply to a group, the tightest first, including those of its parents."""
    limits = []
    for level in group.levels:
        cores = _limit_of_version_2(level) if group.version == 2 else _limit_of_version_1(level)
        if cores is not None:
            limits.append(CpuLimit(level, cores))
    return sorted(limits, key=lambda limit: limit.cores)


def cpu_counts(level: str, version: int) -> dict[str, float]:
    """The usage and throttling of a group since it was created.

    `throttled_periods` are the `periods` in which it used up its quota and had to wait for the next.
    `throttled_seconds` and `used_seconds` are sums over all processors.
    """
    counts = named_numbers(read_text(f"{level}/cpu.stat"))
    names = {"nr_periods": ("periods", 1.0), "nr_throttled": ("throttled_periods", 1.0)}
    if version == 2:
        names |= {"usage_usec": ("used_seconds", 1e6), "throttled_usec": ("throttled_seconds", 1e6)}
    else:
        names |= {"throttled_time": ("throttled_seconds", 1e9)}
    return {ours: counts[theirs] / unit for theirs, (ours, unit) in names.items() if theirs in counts}


def _limit_of_version_2(level: str) -> float | None:
    words = (read_text(f"{level}/cpu.max") or "").split()
    if len(words) != 2 or not words[0].isdecimal():
        return None
    return int(words[0]) / int(words[1])


def _limit_of_version_1(level: str) -> float | None:
    quota = read_number(f"{level}/cpu.cfs_quota_us")
    period = read_number(f"{level}/cpu.cfs_period_us")
    return quota / period if quota is not None and quota > 0 and period else None


_NO_LIMIT_BYTES = 1 << 60
"""Version 1 writes its largest number where there is no limit."""


class MemoryLimit(NamedTuple):
    """A limit on memory, and the folder of the group that sets it."""

    level: str
    limit_bytes: int


class GroupMemory(NamedTuple):
    """The memory usage of a group."""

    used_bytes: int
    working_set_bytes: int | None
    """Without inactive file pages, which are freed when memory is needed."""


def memory_limits(group: Group) -> list[MemoryLimit]:
    """All limits that apply to a group, the tightest first, including those of its parents."""
    name = "memory.max" if group.version == 2 else "memory.limit_in_bytes"
    limits = [(level, read_number(f"{level}/{name}")) for level in group.levels]
    set_limits = [MemoryLimit(level, limit) for level, limit in limits if limit and limit < _NO_LIMIT_BYTES]
    return sorted(set_limits, key=lambda limit: limit.limit_bytes)


def group_memory(level: str, version: int) -> GroupMemory | None:
    """The memory usage of a group; None for the outermost, which has no accounting."""
    usage, inactive = (
        ("memory.current", "inactive_file")
        if version == 2
        else ("memory.usage_in_bytes", "total_inactive_file")
    )
    used = read_number(f"{level}/{usage}")
    if used is None:
        return None
    spare = number_named(read_text(f"{level}/memory.stat") or "", inactive)
    return GroupMemory(used, None if spare is None else max(used - spare, 0))


def memory_events(level: str, version: int) -> dict[str, int]:
    """How often a group came near its limit since it was created.

    It exceeded `high`, reached `max`, could free nothing (`oom`), had a process killed (`oom_kill`).
    """
    if version == 2:
        events = named_numbers(read_text(f"{level}/memory.events"))
    else:
        reached = read_number(f"{level}/memory.failcnt")
        events = named_numbers(read_text(f"{level}/memory.oom_control"))
        events |= {} if reached is None else {"max": reached}
    return {name: events[name] for name in ("high", "max", "oom", "oom_kill") if name in events}
