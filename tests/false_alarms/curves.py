"""Losses and gradient norms of healthy trainings of many kinds, and of those that fail, made from a seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Chance = np.random.Generator
Floats = np.ndarray


@dataclass(frozen=True)
class Curve:
    """What one training logs: its steps, losses and gradient norms; the learning rate where it is logged."""

    steps: Floats
    loss: Floats
    gradient_norm: Floats
    learning_rate: Floats | None = None


def falling(chance: Chance, count: int) -> Floats:
    """A loss that falls by a factor of 2 to 30, without noise."""
    first, factor = 10 ** chance.uniform(-1, 1.5), chance.uniform(2, 30)
    pace = chance.uniform(0.05, 0.4) * count
    return first * ((1 - 1 / factor) * np.exp(-np.arange(count) / pace) + 1 / factor)


def noise(chance: Chance, count: int, most: float = 0.2) -> Floats:
    """Factors near 1, independent from loss to loss."""
    return np.exp(chance.normal(0, chance.uniform(0.01, most), count))


def _count(chance: Chance) -> int:
    return int(10 ** chance.uniform(2.3, 3.45))


def gan_rising(chance: Chance) -> Floats:
    """The generator of a GAN: the better the discriminator, the higher its loss."""
    count = _count(chance)
    reached = np.linspace(0, 1, count) ** chance.uniform(0.4, 1.5)
    drift = np.cumsum(chance.normal(0, 1, count)) / np.sqrt(count) * chance.uniform(0, 0.5)
    course = chance.uniform(0.5, 1.5) + chance.uniform(1, 10) * reached
    return np.maximum(course * (1 + 0.3 * drift), 0.05) * noise(chance, count, 0.35)


def value_loss_rising(chance: Chance) -> Floats:
    """The value loss of reinforcement learning: it grows with the rewards."""
    count = max(_count(chance), 600)
    middle, width = chance.uniform(0.2, 0.8) * count, chance.uniform(0.15, 0.3) * count
    grown = 1 / (1 + np.exp(-(np.arange(count) - middle) / width))
    return 10 ** (-2 + chance.uniform(0.5, 3) * grown) * np.exp(chance.normal(0, 0.5, count))


def cyclic(chance: Chance) -> Floats:
    """A falling loss with a period: classes in turn, or a cyclic learning rate that is not logged."""
    count = _count(chance)
    period, size = chance.uniform(30, 400), chance.uniform(0.1, 0.8)
    wave = 1 + size * np.sin(2 * np.pi * (np.arange(count) / period + chance.random()))
    return falling(chance, count) * wave * noise(chance, count)


def curriculum(chance: Chance) -> Floats:
    """Stages of rising difficulty: the loss jumps up at each, and falls again."""
    count = _count(chance)
    stages = int(chance.integers(2, max(min(8, count // 60), 3)))
    shares = chance.uniform(0.5, 1.5, stages)
    starts = np.concatenate([[0], (np.cumsum(shares) / shares.sum() * count)[:-1]]).astype(int)
    losses, level = np.empty(count), 10 ** chance.uniform(-0.5, 1)
    first = level
    for begin, end in zip(starts, [*starts[1:], count], strict=True):
        within = np.arange(end - begin)
        floor = level * chance.uniform(0.05, 0.5)
        losses[begin:end] = floor + (level - floor) * np.exp(
            -within / (len(within) * chance.uniform(0.1, 0.6))
        )
        level = first * chance.uniform(0.5, 1.6)
    return losses * noise(chance, count, 0.15)


def heavy_tailed(chance: Chance) -> Floats:
    """Single batches that are far harder than others."""
    count = _count(chance)
    tails = np.abs(chance.standard_t(chance.uniform(1.5, 3), count))
    return falling(chance, count) * (1 + chance.uniform(0.05, 0.4) * tails)


def doubling(chance: Chance) -> Floats:
    """Two alternating kinds of batches: for some dozens of steps the loss is about twice as high."""
    count = _count(chance)
    is_high = np.zeros(count, bool)
    place = 0
    while place < count:
        low, high = int(chance.integers(15, 150)), int(chance.integers(10, 100))
        is_high[place + low : place + low + high] = True
        place += low + high
    return falling(chance, count) * np.where(is_high, chance.uniform(1.5, 2.5), 1.0) * noise(chance, count)


def warm_restarts(chance: Chance) -> Floats:
    """Cosine restarts of the learning rate: the loss rises at each restart, and falls below where it was."""
    count = _count(chance)
    cycle = max(int(count / chance.integers(2, 7)), 40)
    heat = 0.5 + 0.5 * np.cos(np.pi * (np.arange(count) % cycle) / cycle)
    course = falling(chance, count)
    return (course + heat * chance.uniform(0.1, 0.6) * course[0]) * noise(chance, count, 0.1)


def sparse(chance: Chance) -> Floats:
    """A loss that is logged every 50 steps."""
    count = int(chance.integers(30, 120))
    return falling(chance, count) * noise(chance, count, 0.4)


def plateau(chance: Chance) -> Floats:
    """A loss that stays where it is, wandering a little."""
    count = _count(chance)
    wander = np.cumsum(chance.normal(0, 1, count)) / np.sqrt(count) * chance.uniform(0, 0.1)
    return 10 ** chance.uniform(-2, 1) * (1 + wander) * noise(chance, count, 0.1)


def growing_episodes(chance: Chance) -> Floats:
    """A policy gradient's loss, summed over episodes that become longer as the policy learns."""
    count = int(chance.integers(200, 1500))
    lengths = episode_lengths(chance, count)
    return lengths * chance.uniform(0.2, 1.0) * np.exp(chance.normal(0, 0.3, count))


def episode_lengths(chance: Chance, count: int) -> Floats:
    """Steps of each episode: from about 20 to about 500."""
    middle, width = chance.uniform(0.2, 0.6) * count, chance.uniform(0.05, 0.2) * count
    mean = 20 + chance.uniform(100, 480) / (1 + np.exp(-(np.arange(count) - middle) / width))
    return np.clip(mean * np.exp(chance.normal(0, 0.3, count)), 8, 500)


def converging_quickly(chance: Chance) -> Floats:
    """A linear model: the loss falls by many orders of magnitude, to where rounding is all that is left."""
    count = _count(chance)
    floor = 10 ** chance.uniform(-14, -6)
    course = 10 ** chance.uniform(0, 6) * np.exp(-np.arange(count) / 10 ** chance.uniform(-0.3, 1.6))
    return course * noise(chance, count) + floor * np.exp(chance.normal(0, 1.0, count))


def kl_warm_up(chance: Chance) -> Floats:
    """A variational autoencoder: reconstruction falls, then the weight of the KL term is raised."""
    count = _count(chance)
    begin = chance.uniform(0.1, 0.5) * count
    ramp = np.clip((np.arange(count) - begin) / (chance.uniform(0.1, 0.5) * count), 0, 1)
    course = falling(chance, count)
    room = max(0.8 * course[0] - course[-1], 0)
    term = min(chance.uniform(0.2, 1.5) * course[-1], room)
    return (course + term * ramp) * noise(chance, count, 0.1)


HEALTHY: dict[str, Callable[[Chance], Floats]] = {
    curve.__name__: curve
    for curve in (
        gan_rising, value_loss_rising, cyclic, curriculum, heavy_tailed, doubling, warm_restarts, sparse,
        plateau, growing_episodes, converging_quickly, kl_warm_up,
    )
}  # fmt: skip


def healthy(kind: str, seed: int) -> Curve:
    """One curve of a kind; half of those with restarts log their learning rate."""
    chance = np.random.default_rng([seed, list(HEALTHY).index(kind)])
    loss = HEALTHY[kind](chance)
    steps = np.arange(len(loss)) * (50 if kind == "sparse" else 1)
    return Curve(steps, loss, norms_for(chance, loss))


def norms_for(chance: Chance, loss: Floats) -> Floats:
    """Gradient norms as a loss of this course would have them: they fall and rise with its root."""
    return 10 ** chance.uniform(-1, 1) * np.sqrt(np.abs(loss)) * np.exp(chance.normal(0, 0.5, len(loss)))


# What fails: each has a course that goes well, and a dose.

USUAL = ("usual", "noisy", "curriculum", "doubling", "heavy_tailed")
"""The courses into which failures are planted."""


def course_of(chance: Chance, kind: str) -> Floats:
    """A healthy course of at least 200 losses that has come down."""
    if kind in ("usual", "noisy"):
        count = int(chance.integers(300, 2000))
        return falling(chance, count) * noise(chance, count, 0.1 if kind == "usual" else 0.4)
    while True:
        made = HEALTHY[kind](chance)
        if len(made) >= 300:
            return made


def diverging(kind: str, seed: int, growth: float, lasting: int) -> Curve:
    """The loss is multiplied by `growth` at each of the last steps."""
    chance = np.random.default_rng([seed, 1])
    loss = course_of(chance, kind)
    loss[-lasting:] = loss[-lasting:] * growth ** np.arange(lasting)
    return Curve(np.arange(len(loss)), loss, norms_for(chance, loss))


def collapsed(kind: str, seed: int, times_first: float, lasting: int) -> Curve:
    """The loss jumps to so many times the first one, and stays there."""
    chance = np.random.default_rng([seed, 2])
    loss = course_of(chance, kind)
    loss[-lasting:] = times_first * np.median(loss[:5]) * noise(chance, lasting, 0.1)
    return Curve(np.arange(len(loss)), loss, norms_for(chance, loss))


def stayed_up(kind: str, seed: int, times_first: float, lasting: int) -> Curve:
    """The same, for so many further losses as a whole run has."""
    before = collapsed(kind, seed, times_first, 120)
    chance = np.random.default_rng([seed, 3])
    after = np.median(before.loss[-120:]) * noise(chance, lasting, 0.1)
    loss = np.concatenate([before.loss, after])
    return Curve(np.arange(len(loss)), loss, norms_for(chance, loss))


def blown_up(seed: int, times_first: float) -> Curve:
    """The loss doubles from the first step on, up to so many times the first one."""
    chance = np.random.default_rng([seed, 3])
    count = int(chance.integers(100, 600))
    first = 10 ** chance.uniform(-1, 1.5)
    growth = 2.0 ** np.minimum(np.arange(count), 60)
    loss = first * np.minimum(growth, times_first) * noise(chance, count)
    return Curve(np.arange(count), loss, norms_for(chance, loss))


def exploded(kind: str, seed: int, factor: float, lasting: int) -> Curve:
    """Gradient norms are multiplied for some steps near the end; the loss does not show it."""
    chance = np.random.default_rng([seed, 4])
    loss = course_of(chance, kind)
    norms = norms_for(chance, loss)
    norms[-lasting - 20 : -20] *= factor
    return Curve(np.arange(len(loss)), loss, norms)
