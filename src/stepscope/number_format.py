"""Writes a number as people read it: 134,000, 0.1883, 5e-4, 25.6M, NaN."""

from __future__ import annotations

import math

_PREFIXES = ("M", "G", "T")
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


def nonfinite(value: float) -> str:
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
