"""Finds the recording process that another process belongs to: its nearest recording ancestor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepscope.devices.host.kernel_files import PROC, read_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from stepscope.schema.sample import Watched


def parent_of(pid: int, proc: Path = PROC) -> int | None:
    """The parent of a process; None when the process is gone, or was started by the kernel."""
    text = read_text(f"{proc}/{pid}/stat")
    # The name of the process is in brackets and may contain anything, including brackets.
    parent = int(text.rpartition(")")[2].split()[1]) if text else 0
    return parent or None


def owners_of(
    pid: int, watched: Iterable[Watched], find_parent: Callable[[int], int | None] = parent_of
) -> list[Watched]:
    """The recording processes a process belongs to: its nearest recording ancestor of each run.

    Walking up from the few processes on a GPU costs less than listing the descendants of every rank.
    """
    roots: dict[int, list[Watched]] = {}
    for process in watched:
        roots.setdefault(process.pid, []).append(process)
    nearest: dict[str, Watched] = {}
    for ancestor in _ancestors(pid, find_parent):
        for process in roots.get(ancestor, ()):
            nearest.setdefault(process.run_id, process)
    return list(nearest.values())


def _ancestors(pid: int, find_parent: Callable[[int], int | None]) -> Iterator[int]:
    """A process and its ancestors; stops at a number that repeats, as after a number was reused."""
    visited: set[int] = set()
    current: int | None = pid
    while current is not None and current not in visited:
        visited.add(current)
        yield current
        current = find_parent(current)
