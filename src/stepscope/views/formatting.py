"""Formats figures for people: durations, sizes, shares, numbers with their unit."""

from __future__ import annotations

from stepscope.number_format import number

_DURATIONS = ((86_400, 3_600, "d", "h"), (3_600, 60, "h", "min"), (60, 1, "min", "s"))
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB")
_UNIT_SIGNS = {"celsius": "°C", "watts": "W", "joules": "J", "hertz": "Hz"}

MANY_TIMES = 10.0
"""A change of this factor or more is written as a factor: thousands of percent are hard to read."""


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


def percent(ratio: float) -> str:
    """Formats a share in percent, with one more digit if it is small."""
    shown = 100.0 * ratio
    return f"{shown:.1f} %" if 0 < abs(shown) < 9.95 else f"{shown:.0f} %"


def signed_percent(ratio: float) -> str:
    """Formats a change in percent, with its sign."""
    return ("+" if ratio > 0 else "") + percent(ratio)


def rate(value: float, unit: str) -> str:
    """Formats a rate per second with three digits: `134,000 steps/s`."""
    return f"{number(value, 3)} {unit}/s"


def comparison(ratio: float, more: str, less: str) -> str:
    """Formats a change, 0.1 for 10% more: `12 % slower`, or from a factor of ten `1,187 times slower`."""
    word = more if ratio > 0 else less
    if not is_many_times(ratio):
        return f"{percent(abs(ratio))} {word}"
    factor = 1 + ratio if ratio > 0 else 1 / (1 + ratio)
    return f"{number(round(factor) if factor >= 100 else factor, 3)} times {word}"


def is_many_times(ratio: float) -> bool:
    """Returns whether a change should be written as a factor: 9 for ten times as much, -0.9 for a tenth."""
    return ratio >= MANY_TIMES - 1 or -1 < ratio <= 1 / MANY_TIMES - 1


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
    sign = _UNIT_SIGNS.get(unit, unit)
    return f"{number(value)} {sign}".rstrip()
