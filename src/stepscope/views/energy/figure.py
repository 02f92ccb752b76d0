"""A figure of a report: its value, its unit, and the method behind it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """A value that may be unknown, with the method behind it or the reason why it is unknown."""

    value: float | None
    unit: str
    method: str | None
    """The method in a word or two, shown in brackets after the value."""
    how: str
    """The method and its assumptions; where `value` is None, why it is not known."""
    source: str | None = None
    """Where a table value that the figure depends on comes from."""


def unknown(unit: str, why: str) -> Figure:
    """Returns a figure without a value, with the reason."""
    return Figure(None, unit, None, why)
