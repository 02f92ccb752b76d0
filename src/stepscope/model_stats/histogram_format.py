"""The array format of a recorded histogram, and how to read it.

An array has 71 numbers: 64 counts, then minimum, maximum, mean, standard deviation, share of zeros, number of
non-finite elements, number of all elements. The 64 buckets have equal width and span the range from the
minimum to the maximum of the finite elements; each includes its lower limit, the last one also its upper
limit. If all finite elements are equal, they are in the first bucket. Minimum and maximum are NaN if no
element is finite.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepscope.errors import RecorderError

if TYPE_CHECKING:
    from collections.abc import Sequence

BUCKETS = 64
FIGURES = ("minimum", "maximum", "mean", "std", "zeros_ratio", "nonfinite", "elements")
LENGTH = BUCKETS + len(FIGURES)


@dataclass(frozen=True)
class Histogram:
    """The distribution of the elements of a layer."""

    counts: tuple[float, ...]
    minimum: float
    maximum: float
    mean: float
    """Of the finite elements, as is `std`, the standard deviation."""

    std: float
    zeros_ratio: float
    """Share of all elements that are exactly zero."""

    nonfinite: float
    elements: float

    @classmethod
    def read(cls, array: Sequence[float]) -> Histogram:
        """Reads a recorded array."""
        numbers = [float(number) for number in array]
        if len(numbers) != LENGTH:
            raise RecorderError(f"A histogram has {LENGTH} numbers; this array has {len(numbers)}.")
        return cls(tuple(numbers[:BUCKETS]), *numbers[BUCKETS:])

    @property
    def finite(self) -> float:
        """How many elements are in the buckets."""
        return self.elements - self.nonfinite

    @property
    def limits(self) -> tuple[float, ...]:
        """The 65 limits of the buckets; empty if no element is finite."""
        if math.isnan(self.minimum):
            return ()
        positions = (limit / BUCKETS for limit in range(BUCKETS + 1))
        return tuple(self.minimum * (1 - position) + self.maximum * position for position in positions)

    @property
    def total(self) -> float:
        """The sum of the finite elements, which viewers such as TensorBoard need."""
        return self.mean * self.finite

    @property
    def total_of_squares(self) -> float:
        """The sum of squares of the finite elements, which viewers such as TensorBoard need."""
        return (self.std**2 + self.mean**2) * self.finite
