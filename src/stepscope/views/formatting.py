"""Formats figures for people: durations, sizes, shares, numbers with their unit."""

from __future__ import annotations

from stepscope.number_format import duration, number, size

__all__ = [
    "between",
    "comparison",
    "duration",
    "is_many_times",
    "percent",
    "quantity",
    "rate",
    "signed_percent",
    "size",
]

_UNIT_SIGNS = {"celsius": "°C", "watts": "W", "joules": "J", "hertz": "Hz"}

MANY_TIMES = 10.0
"""A change of this factor or more is written as a factor: thousands of percent are hard to read."""


def percent(ratio: float) -> str:
    """Formats a share in percent, with one more digit if it is small."""
    shown = 100.0 * ratio
    return f"{shown:.1f}%" if 0 < abs(shown) < 9.95 else f"{shown:.0f}%"


def signed_percent(ratio: float) -> str:
    """Formats a change in percent, with its sign."""
    return ("+" if ratio > 0 else "") + percent(ratio)


def rate(value: float, unit: str) -> str:
    """Formats a rate per second with three digits: `134,000 steps/s`."""
    return f"{number(value, 3)} {unit}/s"


def comparison(ratio: float, more: str, less: str) -> str:
    """Formats a change, 0.1 for 10% more: `12% slower`, or from a factor of ten `1,187 times slower`."""
    word = more if ratio > 0 else less
    if not is_many_times(ratio):
        return f"{percent(abs(ratio))} {word}"
    factor = 1 + ratio if ratio > 0 else 1 / (1 + ratio)
    return f"{number(round(factor) if factor >= 100 else factor, 3)} times {word}"


def is_many_times(ratio: float) -> bool:
    """Returns whether a change should be written as a factor: 9 for ten times as much, -0.9 for a tenth."""
    return ratio >= MANY_TIMES - 1 or -1 < ratio <= 1 / MANY_TIMES - 1


def between(low: str, high: str) -> str:
    """Joins two quantities; the unit is written once if it is the same: `30 to 33 ms`."""
    if low == high:
        return low
    number_text, _, unit = low.rpartition(" ")
    has_one_unit = number_text and " " not in number_text
    return f"{number_text} to {high}" if has_one_unit and high.endswith(f" {unit}") else f"{low} to {high}"


def quantity(value: float, unit: str) -> str:
    """Formats a number according to its unit."""
    if unit == "seconds":
        return duration(value)
    if unit == "bytes":
        return size(value)
    if unit == "bytes/s":
        return f"{size(value)}/s"
    if unit == "ratio":
        return percent(value)
    if unit == "%":
        return f"{number(value)}%"
    sign = _UNIT_SIGNS.get(unit, unit)
    return f"{number(value)} {sign}".rstrip()
