"""The layout in which a histogram is recorded as one array, and how to read it.

An array has 71 numbers: 64 counts, then least, greatest, mean, standard deviation, share of zeros, number of
elements that are not finite, number of all elements. The 64 buckets are equally wide and reach from the least
to the greatest of the finite elements; each has its lower limit, the last one its upper limit too. Where all
finite elements are equal they are in the first bucket. Least and greatest are NaN where no element is finite.
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
    """How the elements of a layer are spread."""

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
        """Reads an array as it was recorded."""
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
        """The 65 limits of the buckets; empty where no element is finite."""
        if math.isnan(self.minimum):
            return ()
        share = (at / BUCKETS for at in range(BUCKETS + 1))
        return tuple(self.minimum * (1 - one) + self.maximum * one for one in share)

    @property
    def total(self) -> float:
        """The sum of the finite elements, which viewers such as TensorBoard ask for."""
        return self.mean * self.finite

    @property
    def total_of_squares(self) -> float:
        """The sum of their squares, likewise."""
        return (self.std**2 + self.mean**2) * self.finite
