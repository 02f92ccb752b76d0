"""Reads the processor time limit of a control group, and how often it was throttled."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from stepscope.devices.host.kernel_files import named_numbers, read_number, read_text

if TYPE_CHECKING:
    from stepscope.devices.host.cgroup import Group


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
