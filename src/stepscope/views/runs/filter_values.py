"""Parses the values of a filter: numbers with units, durations, sizes, shares and moments."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_NUMBER = re.compile(r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?)\s*([^\W\d_]*|%)")
_LENGTH = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([a-z]*)")

COUNTS = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}
SECONDS = {"": 1.0, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
SIZES = {
    "": 1.0, "B": 1.0, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
    "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40,
    "K": 2.0**10, "M": 2.0**20, "G": 2.0**30, "T": 2.0**40,
}  # fmt: skip


@dataclass(frozen=True)
class Moment:
    """A moment or a day; a relative one counts from when it is evaluated."""

    begin: float
    """Seconds since the epoch; seconds before now if it is relative."""
    seconds: float = 0.0
    """How long it lasts: 0 for a moment, or the length of a day."""
    is_relative: bool = False

    def at(self, now: float) -> tuple[float, float]:
        """Returns its begin and end."""
        begin = now - self.begin if self.is_relative else self.begin
        return begin, begin + self.seconds


def count(text: str) -> float:
    """Parses a number such as 1000, 1e3 or 1k."""
    return _scaled(text, COUNTS, "a number such as 1000, 1e-3 or 10k")


def size(text: str) -> float:
    """Parses bytes such as 80GB or 512MiB."""
    return _scaled(text, SIZES, "a size such as 512MiB or 80GB")


def share(text: str) -> float:
    """Parses a share such as 50, 50% or 0.5; values above 1 are percent."""
    match = _NUMBER.fullmatch(text)
    if match is None or match[2] not in ("", "%"):
        raise ValueError("a share such as 50% or 0.5")
    value = _finite(match[1])
    return value / 100 if match[2] == "%" or abs(value) > 1 else value


def length(text: str) -> float:
    """Parses a duration such as 90, 2h or 1h30m into seconds."""
    total, position, is_negative = 0.0, 0, text.startswith("-")
    rest = text[1:] if is_negative else text
    while position < len(rest):
        match = _LENGTH.match(rest, position)
        if (
            match is None
            or match[2] not in SECONDS
            or (match[2] == "" and position + len(match[0]) < len(rest))
        ):
            raise ValueError("a length of time such as 90s, 2h or 1h30m")
        total += _finite(match[1]) * SECONDS[match[2]]
        position = match.end()
    if not rest:
        raise ValueError("a length of time such as 90s, 2h or 1h30m")
    return -total if is_negative else total


def moment(text: str) -> Moment:
    """Parses a moment such as -2d, 2026-01-31, 2026-01-31T18:00 or seconds since the epoch."""
    if text.startswith("-"):
        return Moment(length(text[1:]), is_relative=True)
    try:
        if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
            day = datetime.fromisoformat(text).astimezone()
            return Moment(day.timestamp(), (day + timedelta(days=1)).timestamp() - day.timestamp())
        if re.match(r"[0-9]{4}-", text):
            return Moment(datetime.fromisoformat(text).astimezone().timestamp())
        return Moment(_scaled(text, {"": 1.0}, ""))
    except (ValueError, OverflowError, OSError):
        raise ValueError("a moment such as -2d, 2026-01-31 or 2026-01-31T18:00") from None


def _scaled(text: str, units: dict[str, float], expected: str) -> float:
    match = _NUMBER.fullmatch(text)
    if match is None or match[2] not in units:
        raise ValueError(expected)
    return _finite(str(_finite(match[1]) * units[match[2]]))


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number that is not too large")
    return value


READERS: dict[str, Callable[[str], float]] = {"count": count, "size": size, "share": share, "length": length}
