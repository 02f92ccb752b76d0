"""Estimates by how much one run is slower than others, with an interval that noise does not leave."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from stepscope.analysis.robust import autocorrelation, block_edges, block_medians, spread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

CONFIDENCE = 0.95

BLOCKS, MIN_BLOCK = 20, 10
"""Steps are compared in blocks: neighbouring steps are correlated, so single steps seem more certain."""

MIN_BLOCKS = 4
MIN_STEPS = MIN_BLOCKS * MIN_BLOCK

MEDIAN_TO_MEAN = 1.2533
"""The standard error of a median of normal values is 25% larger than that of their mean."""

MIN_RUNS = 3
"""From this number of runs on, their own differences are used, which are larger than those of blocks."""

HIGH_CONFIDENCE = 0.99
"""For comparisons that nobody asked for: a run must not be called slower for nothing."""


@dataclass(frozen=True)
class Quantiles:
    """The quantiles of an interval of some confidence."""

    student: tuple[float, ...]
    """Of Student's t distribution with 1, 2, … degrees of freedom."""
    student_beyond: float
    """Close enough for more degrees of freedom than that."""
    normal: float


QUANTILES = {
    CONFIDENCE: Quantiles((12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23), 2.1, 1.96),
    HIGH_CONFIDENCE: Quantiles((63.66, 9.92, 5.84, 4.60, 4.03, 3.71, 3.50, 3.36, 3.25, 3.17), 3.11, 2.58),
}


@dataclass(frozen=True)
class Change:
    """A relative change, 0.1 for 10% more, and its interval."""

    ratio: float
    low: float
    high: float


@dataclass(frozen=True)
class Level:
    """The median of a run's values, and its standard error."""

    value: float
    error: float


def time_change(
    current: Floats, baselines: Sequence[Floats], confidence: float = CONFIDENCE, run_noise: float = 0.0
) -> Change | None:
    """Returns how much longer a run's steps take than those of its baselines; None for too few steps.

    Medians are compared on a logarithmic scale. With several baselines, a run that differs from them no more
    than they do from each other is within the interval. `run_noise` is the spread between equal runs, as a
    share, that is assumed where there are too few baselines to show it.
    """
    if not baselines or any(len(seconds) < MIN_STEPS for seconds in (current, *baselines)):
        return None
    own, *levels = (level_of(np.log(np.maximum(seconds, 1e-9))) for seconds in (current, *baselines))
    difference, width = difference_of(own, levels, confidence, run_noise)
    low, ratio, high = (math.expm1(difference + shift) for shift in (-width, 0.0, width))
    return Change(ratio, low, high)


def difference_of(
    own: Level, levels: Sequence[Level], confidence: float = CONFIDENCE, run_noise: float = 0.0
) -> tuple[float, float]:
    """Returns the difference between a level and the median of others, and half the width of its interval."""
    values = [level.value for level in levels]
    count, quantiles = len(values), QUANTILES[confidence]
    error = math.sqrt(float(np.mean([level.error**2 for level in levels])))
    width = quantiles.normal * math.hypot(own.error, error)
    if count >= MIN_RUNS:
        within_table = count - 1 <= len(quantiles.student)
        quantile = quantiles.student[count - 2] if within_table else quantiles.student_beyond
        width = max(width, quantile * float(np.std(values, ddof=1)) * math.sqrt(1 + 1 / count))
    else:
        width = math.hypot(width, quantiles.normal * run_noise * math.sqrt(1 + 1 / count))
    return own.value - float(np.median(values)), width


def level_of(values: Floats) -> Level:
    """Returns the median of correlated values with its standard error."""
    blocks = block_medians(values, block_edges(len(values), BLOCKS, MIN_BLOCK))
    correlation = min(autocorrelation(blocks), 0.9)
    independent = len(blocks) * (1 - correlation) / (1 + correlation)
    error = MEDIAN_TO_MEAN * float(spread(blocks)) / math.sqrt(independent)
    return Level(float(np.median(values)), error)
