"""Draws numbers as a line of bars (a sparkline)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

LEVELS = "▁▂▃▄▅▆▇█"
CROSS = "×"

ROUNDING = 1e-12
"""Numbers that differ by a smaller share are drawn as equal."""


def sparkline(heights: Sequence[float | None], levels: str = LEVELS, cross: str = CROSS) -> str:
    """A bar for each number; None is a gap, a non-finite value a cross, constant values are flat."""
    known = [height for height in heights if height is not None and math.isfinite(height)]
    low, high = (min(known), max(known)) if known else (0.0, 0.0)
    # Halved first: the distance between the two largest floats overflows.
    span = high / 2 - low / 2
    varies = span > ROUNDING * max(abs(low), abs(high))

    def bar(height: float | None) -> str:
        if height is None:
            return " "
        if not math.isfinite(height):
            return cross
        share = (height / 2 - low / 2) / span if varies else 0.0
        return levels[min(int(share * len(levels)), len(levels) - 1)]

    return "".join(bar(height) for height in heights)
