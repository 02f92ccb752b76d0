"""Formats the numbers of findings: 12.3 ms, 18%, ranks 0, 1, 2 and 5 more."""

from __future__ import annotations

import math

from stepscope import number_format


def seconds(value: float) -> str:
    """Formats a duration with a suitable unit."""
    if value < 0.9995e-3:
        return f"{value * 1e6:.0f} µs"
    if value < 0.9995:
        return f"{value * 1e3:.3g} ms"
    return f"{value:.3g} s" if value < 99.5 else f"{value / 60:.3g} min"


def percent(share: float) -> str:
    """Formats a share as a percentage, with one decimal below 10."""
    return f"{share * 100:.1f}%" if abs(share) < 0.0995 else f"{share * 100:.0f}%"


def number(value: float, digits: int = 4) -> str:
    """Formats any other number."""
    return number_format.number(value, digits)


def round_up(count: float) -> int:
    """Returns the next of 1, 2, 5, 10, 20, 50 and so on: a number of steps as a person would choose it."""
    unit = int(10 ** math.floor(math.log10(max(count, 1.0))))
    return next(times * unit for times in (1, 2, 5, 10) if times * unit >= count)


def within(phase: str) -> str:
    """Says where in a step something happens: in forward, or outside the measured phases."""
    return "outside the measured phases" if phase == "other" else f"in {phase}"


def listed(ranks: tuple[int, ...]) -> str:
    """Lists ranks, at most six: 0, 1, 2, 3, 4, 5 and 2 more."""
    shown = ", ".join(str(rank) for rank in ranks[:6])
    return shown if len(ranks) <= 6 else f"{shown} and {len(ranks) - 6} more"
