"""Statistics that a few odd values hardly move: levels, spreads, and how far out a tail reaches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

TO_SIGMA = 1.4826
"""What makes a standard deviation of a median absolute deviation, where noise is normal."""

LIGHTEST_TAIL, LIGHTEST_OF_FEW, MANY = 8.0, 3.0, 500
"""A tail is never taken to fall faster than this power, and of fewer values than many, than the lesser one:
the greatest of few are hardly a tail, and cannot prove how it falls."""


def spread(values: Floats, axis: int | None = None) -> Floats:
    """The median absolute deviation, as a standard deviation."""
    middle = np.median(values, axis=axis, keepdims=True)
    found: Floats = TO_SIGMA * np.median(np.abs(values - middle), axis=axis)
    return found


def block_edges(count: int, most: int, least_size: int) -> NDArray[np.int64]:
    """Where to cut so many values into blocks of one size, at most `most`; the first few may be left."""
    blocks = max(min(most, count // least_size), 1)
    width = count // blocks
    return np.arange(count - blocks * width, count + 1, width)


def block_medians(values: Floats, edges: NDArray[np.int64]) -> Floats:
    """The median of each block."""
    found: Floats = np.median(values[edges[0] : edges[-1]].reshape(len(edges) - 1, -1), axis=1)
    return found


def block_shares(part: Floats, whole: Floats, edges: NDArray[np.int64]) -> Floats:
    """Of each block, the share that the sum of the part has of that of the whole."""
    found: Floats = np.add.reduceat(part, edges[:-1]) / np.add.reduceat(whole, edges[:-1])
    return found


def likeness(values: Floats) -> float:
    """How much values are like the ones before them, from 0 to 1; 0 where rounding is all that differs."""
    centred = values - values.mean()
    power = float(centred @ centred)
    if power <= len(values) * (1e-12 * max(float(np.abs(values).max()), 1e-300)) ** 2:
        return 0.0
    return max(float(centred[:-1] @ centred[1:]) / power, 0.0)


def expected_beyond(others: Floats, value: float) -> float:
    """How many of as many values would lie beyond this one by chance, by how the others are spread.

    The greatest fiftieth of the others, ten at least, tells by which power their tail falls (Hill). That
    power is taken a standard error lower than it seems. Infinite where there are too few to tell.
    """
    count = max(10, len(others) // 50)
    # Less than one spread counts as one: a series without noise has no tail to tell of.
    greatest = np.maximum(np.sort(others)[-count - 1 :], 1.0)
    if len(greatest) <= count:
        return float("inf")
    logs = float(np.log(greatest[1:] / greatest[0]).mean())
    lightest = LIGHTEST_TAIL if len(others) >= MANY else LIGHTEST_OF_FEW
    power = min(1 / max(logs, 1e-9), lightest) * (1 - 1 / np.sqrt(count))
    return float(count * (max(value, greatest[0]) / greatest[0]) ** -power)
