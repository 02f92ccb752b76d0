"""Finds the control group of a process, and its parents, which may limit it too."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from stepscope.devices.host.kernel_files import PROC, read_text
from stepscope.devices.host.mounts import Mount, mounts
from stepscope.devices.interval import Interval

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
