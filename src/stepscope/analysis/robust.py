"""Statistics that are robust against outliers: medians of blocks, spreads, and tails of distributions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

MAD_TO_SIGMA = 1.4826
"""Converts a median absolute deviation to a standard deviation, for normal noise."""

LIGHTEST_TAIL, LIGHTEST_OF_FEW, MANY = 8.0, 3.0, 500
"""Upper bounds of the estimated tail exponent; the lower one applies to fewer values than `MANY`, whose few
greatest values say little about the tail."""


def spread(values: Floats, axis: int | None = None) -> Floats:
    """Returns the median absolute deviation, scaled to a standard deviation."""
    middle = np.median(values, axis=axis, keepdims=True)
    deviation: Floats = MAD_TO_SIGMA * np.median(np.abs(values - middle), axis=axis)
    return deviation


def usual_range(values: Floats) -> float:
    """Returns the range of the values without their lowest and highest tenth."""
    low, high = np.quantile(values, [0.1, 0.9])
    return float(high - low)


def block_edges(count: int, most: int, least_size: int) -> NDArray[np.int64]:
    """Returns the edges of at most `most` blocks of equal size, without the few first values that remain."""
    blocks = max(min(most, count // least_size), 1)
    width = count // blocks
    # Blocks with one value more may leave out less: of 399 values in 200 blocks, 1 instead of 199.
    if count % (width + 1) < count - blocks * width:
        width += 1
        blocks = count // width
    return np.arange(count - blocks * width, count + 1, width)


def block_medians(values: Floats, edges: NDArray[np.int64]) -> Floats:
    """Returns the median of each block."""
    medians: Floats = np.median(values[edges[0] : edges[-1]].reshape(len(edges) - 1, -1), axis=1)
    return medians


def block_quantiles(values: Floats, edges: NDArray[np.int64], share: float) -> Floats:
    """Returns a quantile of each block."""
    blocks = values[edges[0] : edges[-1]].reshape(len(edges) - 1, -1)
    quantiles: Floats = np.quantile(blocks, share, axis=1)
    return quantiles


def block_shares(part: Floats, whole: Floats, edges: NDArray[np.int64]) -> Floats:
    """Returns, for each block, the sum of the part divided by the sum of the whole."""
    shares: Floats = np.add.reduceat(part, edges[:-1]) / np.add.reduceat(whole, edges[:-1])
    return shares


def autocorrelation(values: Floats) -> float:
    """Returns the correlation of neighbouring values, from 0 to 1; 0 if values differ only by rounding."""
    centred = values - values.mean()
    power = float(centred @ centred)
    if power <= len(values) * (1e-12 * max(float(np.abs(values).max()), 1e-300)) ** 2:
        return 0.0
    return max(float(centred[:-1] @ centred[1:]) / power, 0.0)


def expected_exceedances(others: Floats, value: float) -> float:
    """Returns how many of `len(others)` values would exceed `value` by chance, from the tail of the others.

    Hill's estimator gives the tail exponent from the greatest 2% of the others, ten at least; the result is
    lowered by one standard error. Returns infinity where there are too few values.
    """
    count = max(10, len(others) // 50)
    # Values below one spread count as one spread: a series without noise has no tail.
    greatest = np.maximum(np.sort(others)[-count - 1 :], 1.0)
    if len(greatest) <= count:
        return float("inf")
    logs = float(np.log(greatest[1:] / greatest[0]).mean())
    lightest = LIGHTEST_TAIL if len(others) >= MANY else LIGHTEST_OF_FEW
    exponent = min(1 / max(logs, 1e-9), lightest) * (1 - 1 / np.sqrt(count))
    return float(count * (max(value, greatest[0]) / greatest[0]) ** -exponent)
