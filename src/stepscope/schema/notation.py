"""The notation that conditions of alert rules and filters of runs share.

These are numbers with units, text in quotes, comparisons, and errors with a position. Each language splits
its text itself: in a filter `resnet-50` is a word, in a condition a subtraction.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from stepscope.errors import ConfigError

Scales: TypeAlias = Mapping[str, tuple[int, int]]
"""Units: multiplier and divisor that convert to the base unit. Two numbers keep 2ms at exactly 0.002."""

DURATIONS: Scales = {
    "ns": (1, 10**9), "us": (1, 10**6), "µs": (1, 10**6), "ms": (1, 10**3), "s": (1, 1),
    "m": (60, 1), "min": (60, 1), "h": (3600, 1), "d": (86_400, 1), "w": (604_800, 1),
}  # fmt: skip
PERCENT: Scales = {"%": (1, 100)}
SIZES: Scales = {
    "B": (1, 1), "kB": (10**3, 1), "KB": (10**3, 1), "MB": (10**6, 1), "GB": (10**9, 1), "TB": (10**12, 1),
    "KiB": (2**10, 1), "MiB": (2**20, 1), "GiB": (2**30, 1), "TiB": (2**40, 1),
}  # fmt: skip

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}

NUMBER = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
UNIT = r"%|[^\W\d_]+"
QUOTED = r"\"(?P<double>[^\"]*)\"|'(?P<single>[^']*)'"
LONG_DURATION = rf"(?:{NUMBER}(?:{'|'.join(sorted(DURATIONS, key=len, reverse=True))})){{2,}}\b"
"""A duration of several parts, such as `1h30m`."""

_PART = re.compile(rf"({NUMBER})\s*({UNIT}|)")


class NotationError(ConfigError):
    """A text that cannot be parsed: what is wrong, and at which characters."""

    def __init__(self, message: str, begin: int, end: int, shown: str = "") -> None:
        """`shown` is the message with the text around the mistake, for the terminal."""
        super().__init__(shown or message)
        self.message, self.begin, self.end = message, begin, end


def number_in(text: str, scales: Scales) -> float:
    """Returns a number in base units; a duration may have several parts, such as `1h30m`.

    Raises ValueError for anything else, and for numbers that are too large. A number without a unit has the
    unit `""`.
    """
    total, at = 0.0, 0
    while at < len(text) or not at:
        part = _PART.match(text, at)
        if part is None or part[2] not in scales or (at and "s" not in scales):
            raise ValueError(f"{text!r} is not a number with a known unit")
        total += scaled(float(part[1]), part[2], scales)
        at = part.end()
    if not math.isfinite(total):
        raise ValueError(f"{text!r} is too large")
    return total


def scaled(value: float, unit: str, scales: Scales) -> float:
    """Converts a value to the base unit."""
    times, over = scales[unit]
    return value * times / over
