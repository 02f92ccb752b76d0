"""Adds up the memory that an object's attributes hold, and that of a tree of processes."""

from __future__ import annotations

import os
import sys
from typing import Any

from stepscope.devices.process.process_tree import ProcessTrees
from stepscope.schema.sample import Watched

DEEPEST = 4
MAX_OBJECTS = 200_000
"""After so many objects the sum is what it is: a dataset of millions of names would take minutes."""


def held_bytes(owner: object) -> tuple[int, int]:
    """Bytes of arrays, tensors and byte strings in an object's attributes: those of caches apart, second."""
    seen: set[int] = set()
    plain = cached = 0
    for name, value in vars(owner).items() if hasattr(owner, "__dict__") else ():
        if "cache" in name.lower():
            cached += _bytes_in(value, seen)
        else:
            plain += _bytes_in(value, seen)
    return plain, cached


def _bytes_in(value: Any, seen: set[int]) -> int:
    total = 0
    waiting = [(value, 0)]
    while waiting and len(seen) < MAX_OBJECTS:
        one, depth = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        own = _own_bytes(one)
        if own is not None:
            total += own
        elif depth < DEEPEST:
            waiting += [(part, depth + 1) for part in _parts(one)]
    return total


def _own_bytes(value: Any) -> int | None:
    """The bytes of a value that holds them itself; None for one that only leads to others."""
    if isinstance(value, bytes | bytearray | str):
        return len(value)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.memmap):
        return 0  # it lies in a file
    nbytes = getattr(value, "nbytes", None)
    return nbytes if isinstance(nbytes, int) else None


def _parts(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, list | tuple | set | frozenset):
        return list(value)
    return list(vars(value).values()) if hasattr(value, "__dict__") and not callable(value) else []


class TreeMemory:
    """Memory of this process and all it has started, without stepscope's own agent."""

    def __init__(self) -> None:
        self._trees = ProcessTrees()
        self._owner = Watched("", "", 0, os.getpid(), "rank")

    def read(self) -> int | None:
        """Bytes resident now, shared pages counted for each; None where the system does not tell."""
        trees = self._trees.read([self._owner])
        return sum(member.rss_bytes for member in trees[0].members) if trees else None
