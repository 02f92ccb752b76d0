"""Finds the level a noisy loss has come to, how sure that is, and whether it has changed."""

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
"""Losses below which no change is judged."""

WINDOW, MIN_IN_WINDOW = 0.1, 20
"""A level is that of the last tenth of a stretch, of 20 losses at least, of half the stretch at most."""

MAX_BLOCKS = 30
"""A window is told by the medians of so many blocks, which spikes hardly move."""

NEIGHBOURS = 50
"""Losses are compared with those before them in stretches of so many: a course is nearly straight there."""

MAX_AUTOCORRELATION = 0.98

CERTAIN_ERRORS = 2.58
"""Standard errors beyond which one in a hundred lies by chance."""


@dataclass(frozen=True)
class Level:
    """Where the loss stands, with the standard error of that."""

    value: float
    error: float


@dataclass(frozen=True)
class Change:
    """How far the loss fell between two levels, and how surely it fell at all, or rose."""

    fell: float
    """Negative where it rose."""
    confidence: float
    """One less the chance that noise alone gives as much, up or down."""


@dataclass(frozen=True)
class Noise:
    """How single losses stray from their course."""

    size: float
    """As a standard deviation."""
    autocorrelation: float
    """How much a loss is like the one before it, from 0 to 1; smoothed losses are very much so."""

    def of_mean(self, count: int) -> float:
        """The standard error of the mean of so many in a row."""
        correlation, decorrelation = self.autocorrelation, 1 - self.autocorrelation
        overlap = 2 * correlation * (1 - correlation**count) / (count * decorrelation**2)
        return self.size * math.sqrt(max((1 + correlation) / decorrelation - overlap, 0.0) / count)


def noise_of(y: Floats, autocorrelation: float) -> Noise:
    """The noise of a stretch, from the differences of neighbours: the course itself hardly enters them."""
    moves = np.diff(y)
    if len(moves) < 2:
        return Noise(0.0, autocorrelation)
    return Noise(_spread(moves) / math.sqrt(2 * (1 - autocorrelation)), autocorrelation)


def autocorrelation_of(y: Floats) -> float:
    """How much losses are like the ones before them, their course taken away."""
    size = min(len(y), NEIGHBOURS)
    if size < MIN_LOSSES:
        return 0.0
    parts = y[len(y) % size :].reshape(-1, size)
    parts = parts - parts.mean(axis=1, keepdims=True)
    along = np.arange(size) - (size - 1) / 2
    residuals = parts - np.outer(parts @ along / (along @ along), along)
    bounds = 4 * np.median(np.abs(residuals), axis=1, keepdims=True)
    residuals = np.clip(residuals, -bounds, bounds)  # a spike is like nothing, and would hide what is alike
    powers = (residuals**2).sum(axis=1)
    correlations = (residuals[:, 1:] * residuals[:, :-1]).sum(axis=1)[powers > 0] / powers[powers > 0]
    if not len(correlations):
        return 0.0
    # Taking away a line takes away some likeness with it.
    corrected = (float(np.median(correlations)) + 2 / size) / (1 - 4 / size)
    return min(max(corrected, 0.0), MAX_AUTOCORRELATION)


def level_at_end(x: Floats, y: Floats, noise: Noise) -> Level:
    """The level at the last of some steps; where the loss is surely on its way, it is followed to the end."""
    size = min(max(int(len(y) * WINDOW), MIN_IN_WINDOW), max(len(y) // 2, 1))
    slope = slope_of(*_blocks(x[-2 * size :], y[-2 * size :]))
    along, losses = _blocks(x[-size:] - x[-1], y[-size:])
    detrended = losses if slope is None else losses - slope.value * along
    within = Noise(_spread(detrended), autocorrelation_of(detrended)).of_mean(len(detrended))
    # A median strays a quarter more than a mean.
    error = max(1.25 * noise.of_mean(size), 1.25 * within, _wandering(y, size))
    drift = 0.0 if slope is None else abs(slope.value) * float(x[-1] - x[-size])
    if drift <= CERTAIN_ERRORS * math.sqrt(2) * error:
        return Level(float(np.median(losses)), error)
    # Half a window further is one and a half times this one less half of the one before, and strays more.
    return Level(float(np.median(detrended)), math.sqrt(2.5) * error)


def level_at_start(x: Floats, y: Floats, noise: Noise) -> Level:
    """The level at the first of some steps."""
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
    """A standard deviation that spikes hardly move; where most values are the same, the common one."""
    usual = 1.4826 * float(np.median(np.abs(values - np.median(values))))
    return usual or float(values.std())


def _wandering(y: Floats, size: int) -> float:
    """How far windows of this size stray from the ones around them."""
    if len(y) < 5 * size:
        return 0.0
    levels = np.median(y[len(y) % size :].reshape(-1, size), axis=1)
    bends = levels[1:-1] - (levels[:-2] + levels[2:]) / 2
    return 1.4826 * float(np.median(np.abs(bends))) / math.sqrt(1.5)


def _blocks(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    width = -(-len(y) // MAX_BLOCKS)
    spare = len(y) % width
    return x[spare:].reshape(-1, width).mean(axis=1), np.median(y[spare:].reshape(-1, width), axis=1)
