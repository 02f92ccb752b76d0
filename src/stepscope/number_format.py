"""Writes numbers, durations and sizes as people read them: 134,000, 5e-4, 25.6M, 3 min 05 s, 80.3 GiB."""

from __future__ import annotations

import math
from typing import Literal

NonFinite = Literal["NaN", "∞", "-∞"]
"""The word for a value that is not a finite number."""

_PREFIXES = ("M", "G", "T")
_DURATIONS = ((86_400, 3_600, "d", "h"), (3_600, 60, "h", "min"), (60, 1, "min", "s"))
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB")
LONG, LONGEST = 1e6, 1e15
"""From the one on a number has a prefix, from the other on an exponent."""

TINY = 1e-3
"""Below it a number has an exponent."""


def number(value: float, digits: int = 4) -> str:
    """A plain number with so many significant digits; a whole one below a million has all of them.

    The page writes numbers by the same rules; one table of examples holds both to them.
    """
    if not math.isfinite(value):
        return nonfinite(value)
    sign, size = ("-", -value) if value < 0 else ("", value)
    text = _positive(size, digits)
    return f"{sign}{text}" if text.strip("0.,") else text


def duration(seconds: float) -> str:
    """Formats a duration with two units at most: 640 µs, 31.2 ms, 4.2 s, 3 min 05 s, 1 h 12 min, 2 d 03 h."""
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if 0 < seconds < 0.001:
        return f"{seconds * 1e6:.3g} µs"
    if seconds < 0.9995:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 59.95:
        return f"{seconds:.3g} s"
    whole = round(seconds)
    for unit, part, unit_name, part_name in _DURATIONS:
        if whole >= unit:
            return f"{whole // unit} {unit_name} {whole % unit // part:02d} {part_name}"
    return f"{whole} s"


def size(count: float) -> str:
    """Formats bytes with a fitting unit: 512 B, 1.5 KiB, 80.3 GiB."""
    if count < 0:
        return f"-{size(-count)}"
    for unit in _SIZES[:-1]:
        if count < 1023.5:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 99.95 else f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.0f} TiB" if count >= 99.95 else f"{count:.3g} TiB"


def nonfinite(value: float) -> NonFinite:
    """The word for a value that is not a finite number."""
    if math.isnan(value):
        return "NaN"
    return "∞" if value > 0 else "-∞"


def _positive(size: float, digits: int) -> str:
    if size == 0:
        return "0"
    rounded = float(f"{size:.{digits}g}")
    if rounded >= LONGEST or size < TINY:
        mantissa, _, power = f"{size:.{max(digits - 2, 0)}e}".partition("e")
        return f"{_trimmed(mantissa)}e{int(power)}"
    if rounded >= LONG:
        return _prefixed(size)
    if float(size).is_integer():
        return f"{int(size):,}"
    decimals = max(digits - 1 - math.floor(math.log10(rounded)), 0)
    return _trimmed(f"{rounded:,.{decimals}f}")


def _prefixed(size: float) -> str:
    """Three digits and the prefix that leaves 1 to 999 before it."""
    for power, prefix in enumerate(_PREFIXES, 2):
        shown = float(f"{size / 1000**power:.3g}")
        if shown < 1000 or prefix == _PREFIXES[-1]:
            return f"{_trimmed(f'{shown:.2f}')}{prefix}"
    raise AssertionError  # the last prefix takes all


def _trimmed(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text
