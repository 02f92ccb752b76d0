"""One line that a run printed or logged, wherever it was kept."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ConsoleLine:
    """One line."""

    number: int
    """Its place among all lines, counted from 1."""
    text: str
    time: float | None
    """When it was printed, or captured at the latest."""
    step: int | None
    stream: str
    """`console`, or the category of a log file."""
    level: str
