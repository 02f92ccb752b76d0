"""Lists mounted file systems, without accessing the file systems themselves: one of them may hang."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

from stepscope.devices.host.kernel_files import read_text
from stepscope.procfs import PROC

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_ESCAPE = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """A file system, or a folder of one, and where it is mounted."""

    point: str
    root: str
    """The mounted folder of the file system; `/` for all of it."""
    kind: str
    options: tuple[str, ...]
    """Options of the file system; a control group hierarchy lists its controllers here."""


class Space(NamedTuple):
    """How full a file system is."""

    total_bytes: int
    free_bytes: int
    """What an unprivileged user can still write."""
    used_ratio: float


def mounts(proc: Path = PROC) -> list[Mount]:
    """All mounts this process sees, in mount order."""
    mounted = []
    for line in (read_text(f"{proc}/self/mountinfo") or "").splitlines():
        before, _, after = line.partition(" - ")
        fields, kinds = before.split(" "), after.split(" ")
        if len(fields) > 4 and len(kinds) > 2:
            point, root = _ESCAPE.sub(_unescaped, fields[4]), _ESCAPE.sub(_unescaped, fields[3])
            mounted.append(Mount(point, root, kinds[0], tuple(kinds[2].split(","))))
    return mounted


def mount_point(path: str, among: Iterable[Mount]) -> str | None:
    """The mount point of the file system that contains an absolute path."""
    best: str | None = None
    for mount in among:
        inside = path == mount.point or path.startswith(mount.point.rstrip("/") + "/")
        if inside and (best is None or len(mount.point) >= len(best)):
            best = mount.point
    return best


def space(path: str | os.PathLike[str]) -> Space | None:
    """How full the file system of a path is; None for file systems without a size."""
    try:
        status = os.statvfs(path)
    except OSError:
        return None
    if not status.f_blocks:
        return None
    used = status.f_blocks - status.f_bfree
    # Space reserved for root counts neither as used nor as free, as in `df`.
    return Space(
        total_bytes=status.f_blocks * status.f_frsize,
        free_bytes=status.f_bavail * status.f_frsize,
        used_ratio=used / max(used + status.f_bavail, 1),
    )


def _unescaped(escape: re.Match[str]) -> str:
    """A blank, tab, line break or backslash, which the system writes as an octal number."""
    return chr(int(escape[1], 8))
