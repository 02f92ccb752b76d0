"""Loads the public names of a package when they are first used."""

from __future__ import annotations

TYPE_CHECKING = False  # as type checkers read it; importing typing would double the time this takes
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from typing import Any


def lazy_names(
    package: dict[str, Any], homes: Mapping[str, str], changing: Collection[str] = ()
) -> Callable[[str], Any]:
    """The `__getattr__` of a package, given its globals and the module of each of its names.

    A changing name is read at each use, the others once.
    """

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package['__name__']!r} has no attribute {name!r}")
        import importlib

        value = getattr(importlib.import_module(homes[name]), name)
        if name not in changing:
            package[name] = value
        return value

    return load
