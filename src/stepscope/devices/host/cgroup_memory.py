"""Reads the memory limit and usage of a control group, and how often it reached its limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from stepscope.devices.host.kernel_files import named_numbers, number_named, read_number, read_text

if TYPE_CHECKING:
    from stepscope.devices.host.cgroup import Group

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
