"""Adds up what was used while a run was live: from a counter, or from a rate read now and then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

FEW_INTERVALS = 5
"""A pause longer than so many usual ones is a gap: nobody knows what happened in it."""

USUAL_INTERVAL_S = 1.0
"""The rhythm that is assumed of a series too short to show its own."""

MAX_WATTS = 20_000.0
"""More than the devices of one host draw; a counter that fell and says so is not believed."""


@dataclass(frozen=True)
class Stretch:
    """A time during which something was live, in nanoseconds since the epoch."""

    start_ns: int
    end_ns: int

    @property
    def seconds(self) -> float:
        """How long it is."""
        return max(self.end_ns - self.start_ns, 0) / 1e9


@dataclass(frozen=True)
class Metered:
    """An amount, and for how much of the time it is known."""

    amount: float
    covered_seconds: float


def total(parts: Iterable[Metered]) -> Metered:
    """Several of them together."""
    every = list(parts)
    return Metered(sum(one.amount for one in every), sum(one.covered_seconds for one in every))


def without(stretch: Stretch, others: Sequence[Stretch]) -> list[Stretch]:
    """What is left of a stretch when others are cut out of it."""
    left = [stretch]
    for other in others:
        pieces = []
        for one in left:
            pieces.append(Stretch(one.start_ns, min(one.end_ns, other.start_ns)))
            pieces.append(Stretch(max(one.start_ns, other.end_ns), one.end_ns))
        left = [one for one in pieces if one.end_ns > one.start_ns]
    return left


def from_rate(times_ns: Ints, rates: Floats, stretch: Stretch) -> Metered:
    """The integral of a rate (watts to joules) by trapezoids; gaps are not bridged."""
    at, rates = _ordered(times_ns, rates, stretch)
    if not len(at):
        return Metered(0.0, 0.0)
    widths, middles = _pieces(at, stretch)
    means = rates[:-1]
    if len(at) > 1:
        means = means + np.diff(rates) / np.diff(at) * (middles - at[:-1])
    known = np.diff(at) <= _longest_pause(at)
    amount = float((means * widths)[known].sum())
    inside = Metered(amount, float(widths[known].sum()))
    return total([inside, *_edges(at, (float(rates[0]), float(rates[-1])), stretch)])


def from_counter(times_ns: Ints, shown: Floats, stretch: Stretch) -> Metered:
    """How far a counter went; it counts on through gaps, and may begin again at zero."""
    at, shown = _ordered(times_ns, shown, stretch)
    if len(at) < 2:
        return Metered(0.0, 0.0)
    widths, _ = _pieces(at, stretch)
    steps, pauses = np.diff(shown), np.diff(at)
    fell = steps < 0
    # What it shows after a fall was used since; what was used before it, and not yet seen, is lost.
    believed = shown[1:] <= MAX_WATTS * pauses
    steps = np.where(fell, np.where(believed, shown[1:], 0.0), steps)
    rates = steps / pauses
    inside = Metered(float((rates * widths).sum()), float(widths[~fell].sum()))
    return total([inside, *_edges(at, (float(rates[0]), float(rates[-1])), stretch)])


def _ordered(times_ns: Ints, values: Floats, stretch: Stretch) -> tuple[Floats, Floats]:
    """Finite values by seconds since the stretch began; whole nanoseconds are subtracted, none is lost."""
    finite = np.isfinite(values)
    moments, first = np.unique(times_ns[finite], return_index=True)
    at: Floats = (moments - stretch.start_ns) / 1e9
    return at, values[finite][first]


def _pieces(at: Floats, stretch: Stretch) -> tuple[Floats, Floats]:
    """How much of the time between two looks lies in the stretch, and the middle of that time."""
    inside = np.clip(at, 0.0, stretch.seconds)
    return np.diff(inside), (inside[:-1] + inside[1:]) / 2


def _edges(at: Floats, rates: tuple[float, float], stretch: Stretch) -> list[Metered]:
    """What lies before the first look and after the last, at the rate nearest to it, if it is no gap."""
    distances = (float(at[0]), stretch.seconds - float(at[-1]))
    longest = _longest_pause(at)
    return [
        Metered(rate * min(distance, stretch.seconds), min(distance, stretch.seconds))
        for rate, distance in zip(rates, distances, strict=True)
        if 0 < distance <= longest
    ]


def _longest_pause(at: Floats) -> float:
    pauses = np.diff(at)
    usual = float(np.median(pauses)) if len(pauses) > 2 else USUAL_INTERVAL_S
    return FEW_INTERVALS * max(usual, USUAL_INTERVAL_S)
