"""Adds up the memory of an object's attributes, and that of a process tree."""

from __future__ import annotations

import os
import sys
from typing import Any

from stepscope.devices.process.process_tree import ProcessTrees
from stepscope.schema.sample import Watched

MAX_DEPTH = 4
MAX_OBJECTS = 200_000
"""Maximum number of objects to add up: a dataset with millions of names would take minutes."""


def held_bytes(owner: object) -> tuple[int, int]:
    """Bytes of arrays, tensors and strings in an object's attributes, and separately of its caches."""
    visited: set[int] = set()
    plain = cached = 0
    for name, value in vars(owner).items() if hasattr(owner, "__dict__") else ():
        if "cache" in name.lower():
            cached += _bytes_in(value, visited)
        else:
            plain += _bytes_in(value, visited)
    return plain, cached


def _bytes_in(value: Any, visited: set[int]) -> int:
    total = 0
    pending = [(value, 0)]
    while pending and len(visited) < MAX_OBJECTS:
        part, depth = pending.pop()
        if id(part) in visited:
            continue
        visited.add(id(part))
        own = _own_bytes(part)
        if own is not None:
            total += own
        elif depth < MAX_DEPTH:
            pending += [(inner, depth + 1) for inner in _parts(part)]
    return total


def _own_bytes(value: Any) -> int | None:
    """The bytes of a value that stores data itself; None for a container."""
    if isinstance(value, bytes | bytearray | str):
        return len(value)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.memmap):
        return 0  # it is in a file
    nbytes = getattr(value, "nbytes", None)
    return nbytes if isinstance(nbytes, int) else None


def _parts(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, list | tuple | set | frozenset):
        return list(value)
    return list(vars(value).values()) if hasattr(value, "__dict__") and not callable(value) else []


class TreeMemory:
    """Memory of this process and its children, without stepscope's own agent."""

    def __init__(self) -> None:
        self._trees = ProcessTrees()
        self._owner = Watched("", "", 0, os.getpid(), "rank")

    def read(self) -> int | None:
        """Resident bytes, with shared pages counted for each process; None if not available."""
        trees = self._trees.read([self._owner])
        return sum(member.rss_bytes for member in trees[0].members) if trees else None
