"""Estimates the level of a noisy loss, its standard error, and whether it has changed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from stepscope.views.machine.slopes import slope_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

MIN_LOSSES = 10
"""Minimum number of losses to judge a change."""

WINDOW, MIN_IN_WINDOW = 0.1, 20
"""The level is that of the last 10% of a phase, of at least 20 losses and at most half of the phase."""

MAX_BLOCKS = 30
"""Maximum number of blocks of a window; their medians are robust against spikes."""

MAX_BLOCK_LOSSES = 50
"""Autocorrelation is estimated in blocks of this many losses, in which the trend is nearly linear."""

MAX_AUTOCORRELATION = 0.98

CERTAIN_ERRORS = 2.58
"""Standard errors that noise exceeds with a probability of 1%."""


@dataclass(frozen=True)
class Level:
    """The level of the loss, with its standard error."""

    value: float
    error: float


@dataclass(frozen=True)
class Change:
    """How much the loss fell between two levels, and the confidence that it changed at all."""

    fell: float
    """Negative if it rose."""
    confidence: float
    """One minus the probability that noise alone causes such a change, up or down."""


@dataclass(frozen=True)
class Noise:
    """How much single losses deviate from their trend."""

    size: float
    """Standard deviation."""
    autocorrelation: float
    """Correlation of a loss with the previous one, from 0 to 1; high for smoothed losses."""

    def of_mean(self, count: int) -> float:
        """Returns the standard error of the mean of consecutive losses."""
        correlation, decorrelation = self.autocorrelation, 1 - self.autocorrelation
        overlap = 2 * correlation * (1 - correlation**count) / (count * decorrelation**2)
        return self.size * math.sqrt(max((1 + correlation) / decorrelation - overlap, 0.0) / count)


def noise_of(y: Floats, autocorrelation: float) -> Noise:
    """Returns the noise of losses from the differences of neighbours, which hardly contain the trend."""
    moves = np.diff(y)
    if len(moves) < 2:
        return Noise(0.0, autocorrelation)
    return Noise(_spread(moves) / math.sqrt(2 * (1 - autocorrelation)), autocorrelation)


def autocorrelation_of(y: Floats) -> float:
    """Returns the correlation of losses with the previous ones, without their trend."""
    size = min(len(y), MAX_BLOCK_LOSSES)
    if size < MIN_LOSSES:
        return 0.0
    parts = y[len(y) % size :].reshape(-1, size)
    parts = parts - parts.mean(axis=1, keepdims=True)
    along = np.arange(size) - (size - 1) / 2
    residuals = parts - np.outer(parts @ along / (along @ along), along)
    bounds = 4 * np.median(np.abs(residuals), axis=1, keepdims=True)
    residuals = np.clip(residuals, -bounds, bounds)  # an uncorrelated spike would hide the correlation
    powers = (residuals**2).sum(axis=1)
    correlations = (residuals[:, 1:] * residuals[:, :-1]).sum(axis=1)[powers > 0] / powers[powers > 0]
    if not len(correlations):
        return 0.0
    # Removing a line also removes some correlation.
    corrected = (float(np.median(correlations)) + 2 / size) / (1 - 4 / size)
    return min(max(corrected, 0.0), MAX_AUTOCORRELATION)


def level_at_end(x: Floats, y: Floats, noise: Noise) -> Level:
    """Returns the level at the last step; a clear trend of the loss is followed to the end."""
    size = min(max(int(len(y) * WINDOW), MIN_IN_WINDOW), max(len(y) // 2, 1))
    slope = slope_of(*_blocks(x[-2 * size :], y[-2 * size :]))
    along, losses = _blocks(x[-size:] - x[-1], y[-size:])
    detrended = losses if slope is None else losses - slope.value * along
    within = Noise(_spread(detrended), autocorrelation_of(detrended)).of_mean(len(detrended))
    # The standard error of a median is 25% larger than that of a mean.
    error = max(1.25 * noise.of_mean(size), 1.25 * within, _wandering(y, size))
    drift = 0.0 if slope is None else abs(slope.value) * float(x[-1] - x[-size])
    if drift <= CERTAIN_ERRORS * math.sqrt(2) * error:
        return Level(float(np.median(losses)), error)
    # Extrapolating half a window takes 1.5 times this window minus 0.5 times the previous one, with a larger
    # error.
    return Level(float(np.median(detrended)), math.sqrt(2.5) * error)


def level_at_start(x: Floats, y: Floats, noise: Noise) -> Level:
    """Returns the level at the first step."""
    return level_at_end(-x[::-1], y[::-1], noise)


def change(before: Level, after: Level) -> Change:
    """Compares two levels."""
    fell = before.value - after.value
    error = math.hypot(before.error, after.error)
    rounding = 1e-12 * max(abs(before.value), abs(after.value))
    if error <= rounding:
        return Change(fell, 1.0 if abs(fell) > rounding else 0.0)
    return Change(fell, 2 * NormalDist().cdf(abs(fell) / error) - 1)


def _spread(values: Floats) -> float:
    """Returns a standard deviation that is robust against spikes; the plain one if most values are equal."""
    usual = 1.4826 * float(np.median(np.abs(values - np.median(values))))
    return usual or float(values.std())


def _wandering(y: Floats, size: int) -> float:
    """Returns how much windows of this size deviate from their neighbours."""
    if len(y) < 5 * size:
        return 0.0
    levels = np.median(y[len(y) % size :].reshape(-1, size), axis=1)
    bends = levels[1:-1] - (levels[:-2] + levels[2:]) / 2
    return 1.4826 * float(np.median(np.abs(bends))) / math.sqrt(1.5)


def _blocks(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    width = -(-len(y) // MAX_BLOCKS)
    spare = len(y) % width
    return x[spare:].reshape(-1, width).mean(axis=1), np.median(y[spare:].reshape(-1, width), axis=1)
