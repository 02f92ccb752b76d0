"""Checks the options of callbacks, with an error that says what is allowed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from stepscope.errors import ConfigError
from stepscope.guard import shown


def refuse(callback: object, name: str, value: Any, expected: str) -> ConfigError:
    """The error for a wrong option."""
    return ConfigError(f"{type(callback).__name__}: {name} is {shown(value)}; it must be {expected}.")


def check_flags(callback: object, **flags: Any) -> None:
    """Raises ConfigError unless all values are booleans."""
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise refuse(callback, name, value, "true or false")


def check_counts(callback: object, minimum: int, **counts: Any) -> None:
    """Raises ConfigError unless all values are whole numbers from a minimum on."""
    for name, value in counts.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
            raise refuse(callback, name, value, f"a whole number, {minimum} or more")


def check_ratios(callback: object, **ratios: Any) -> None:
    """Raises ConfigError unless all values are numbers from 0 to 1."""
    for name, value in ratios.items():
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1:
            raise refuse(callback, name, value, "a number from 0 to 1")


def numbers_argument(callback: object, name: str, value: Any) -> tuple[int, ...]:
    """A list of whole numbers, or one of them; raises ConfigError for anything else."""
    numbers = list(value) if isinstance(value, Iterable) and not isinstance(value, str) else [value]
    if any(not isinstance(number, int) or isinstance(number, bool) or number < 0 for number in numbers):
        raise refuse(callback, name, value, "a list of whole numbers, 0 or more")
    return tuple(numbers)


def path_argument(callback: object, name: str, value: Any) -> str | None:
    """A path as text, or None; raises ConfigError for anything else."""
    if value is None or (isinstance(value, str | os.PathLike) and os.fspath(value)):
        return None if value is None else os.fspath(value)
    raise refuse(callback, name, value, "the path of a file or folder")
