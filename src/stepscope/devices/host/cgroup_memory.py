"""Reads how much memory a control group may use, how much it does, and how often it ran into its limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from stepscope.devices.host.kernel_files import named_numbers, number_named, read_number, read_text

if TYPE_CHECKING:
    from stepscope.devices.host.cgroup import Group

_NO_LIMIT_BYTES = 1 << 60
"""Version 1 writes the largest number it has where there is no limit."""


class MemoryLimit(NamedTuple):
    """A bound on memory, and the folder of the group that sets it."""

    level: str
    limit_bytes: int


class GroupMemory(NamedTuple):
    """What a group holds."""

    used_bytes: int
    working_set_bytes: int | None
    """Without the file pages nobody has asked for lately, which go when room is needed."""


def memory_limits(group: Group) -> list[MemoryLimit]:
    """All bounds that hold for a group, the tightest first; a group is bound by those around it too."""
    name = "memory.max" if group.version == 2 else "memory.limit_in_bytes"
    limits = [(level, read_number(f"{level}/{name}")) for level in group.levels]
    set_limits = [MemoryLimit(level, limit) for level, limit in limits if limit and limit < _NO_LIMIT_BYTES]
    return sorted(set_limits, key=lambda limit: limit.limit_bytes)


def group_memory(level: str, version: int) -> GroupMemory | None:
    """What the group of a folder holds; None for the outermost, which keeps no account."""
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
    """How often a group came near its limit since it was made.

    It passed `high`, reached `max`, could free nothing there (`oom`), had a process killed (`oom_kill`).
    """
    if version == 2:
        events = named_numbers(read_text(f"{level}/memory.events"))
    else:
        reached = read_number(f"{level}/memory.failcnt")
        events = named_numbers(read_text(f"{level}/memory.oom_control"))
        events |= {} if reached is None else {"max": reached}
    return {name: events[name] for name in ("high", "max", "oom", "oom_kill") if name in events}
