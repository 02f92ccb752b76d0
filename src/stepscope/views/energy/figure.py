"""A figure as people are shown it: a value, its unit, and how it was found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """A value that can be unknown, and always says how it was found, or why it was not."""

    value: float | None
    unit: str
    method: str | None
    """How it was found in a word or two, to stand behind it in brackets."""
    how: str
    """How it was found and what was assumed; why it is not known where it is None."""
    source: str | None = None
    """Who says so, where it rests on somebody's table."""


def unknown(unit: str, why: str) -> Figure:
    """A figure that could not be had."""
    return Figure(None, unit, None, why)
