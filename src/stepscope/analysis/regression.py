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

QUANTILES = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)
"""The 97.5% quantiles of Student's t with 1, 2, … degrees of freedom; beyond them 2.1 is close enough."""

NORMAL_QUANTILE = 1.96


@dataclass(frozen=True)
class Change:
    """A relative change, 0.1 for 10% more, and its interval."""

    ratio: float
    low: float
    high: float


def time_change(current: Floats, baselines: Sequence[Floats]) -> Change | None:
    """Returns how much longer a run's steps take than those of its baselines; None for too few steps.

    Medians are compared on a logarithmic scale. With several baselines, a run that differs from them no more
    than they do from each other is within the interval.
    """
    if not baselines or any(len(seconds) < MIN_STEPS for seconds in (current, *baselines)):
        return None
    own, own_error = _level(current)
    levels, errors = zip(*map(_level, baselines), strict=True)
    middle = float(np.median(levels))
    width = NORMAL_QUANTILE * math.hypot(own_error, math.sqrt(float(np.mean(np.square(errors)))))
    if len(levels) >= MIN_RUNS:
        freedom = len(levels) - 1
        quantile = QUANTILES[freedom - 1] if freedom <= len(QUANTILES) else 2.1
        width = max(width, quantile * float(np.std(levels, ddof=1)) * math.sqrt(1 + 1 / len(levels)))
    low, ratio, high = (math.expm1(own - middle + shift) for shift in (-width, 0.0, width))
    return Change(ratio, low, high)


def _level(seconds: Floats) -> tuple[float, float]:
    """Returns the logarithm of the median step time, and its standard error."""
    logs = np.log(np.maximum(seconds, 1e-9))
    blocks = block_medians(logs, block_edges(len(logs), BLOCKS, MIN_BLOCK))
    correlation = min(autocorrelation(blocks), 0.9)
    independent = len(blocks) * (1 - correlation) / (1 + correlation)
    return float(np.median(logs)), MEDIAN_TO_MEAN * float(spread(blocks)) / math.sqrt(independent)
