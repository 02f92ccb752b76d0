"""Finds the control group a process belongs to, and everything above it that may limit it."""

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
"""A scheduler may move a process to another group, or change its limits."""


class Group(NamedTuple):
    """A control group: its folder, and those it lies in, up to the outermost that can be seen."""

    version: int
    levels: tuple[str, ...]
    """Its own folder first."""


class Groups:
    """The groups of the watched processes and of this one, looked up now and then."""

    def __init__(
        self, controller: Controller, proc: Path = PROC, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._controller, self._proc = controller, proc
        self._interval = Interval(REFRESH_S, now)
        self._hierarchies: list[Mount] = []
        self._known: dict[str, Group | None] = {}

    def by_owner(self, watched: Sequence[Watched]) -> list[tuple[Watched | None, Group]]:
        """Each group once, with whose it is: nobody's in particular when it is this process's own too.

        A training and its agent usually share one group, and so do all ranks of a host: their figures are
        then those of the host, not told again for every rank.
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
    """The group of a process (its number, or `self`); None where it is in none that can be seen."""
    lines = (read_text(f"{proc}/{process}/cgroup") or "").splitlines()
    memberships = [line.split(":", 2) for line in lines if line.count(":") >= 2]
    # A system on its way from version 1 to 2 mounts both; the controller is where version 1 names it.
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
    """The folders of a group and of all around it.

    A container sees its own group as the outermost one. Where it is told the path the host would use, that
    path begins with the folder that is mounted here, or does not exist here at all.
    """
    top = Path(mount.point)
    root = mount.root.rstrip("/")
    inner = path[len(root) :] if path == root or path.startswith(f"{root}/") else path
    parts = [part for part in inner.split("/") if part]
    if ".." in parts or not top.joinpath(*parts).is_dir():
        return (str(top),)
    return tuple(str(top.joinpath(*parts[:depth])) for depth in range(len(parts), -1, -1))
