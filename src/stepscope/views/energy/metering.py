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

MAX_GAP_INTERVALS = 5
"""A pause longer than so many usual ones is a gap: nobody knows what happened in it."""

DEFAULT_INTERVAL_S = 1.0
"""The rhythm that is assumed of a series too short to show its own."""

MAX_WATTS = 20_000.0
"""More than the devices of one host draw; a counter that fell and says so is not believed."""


@dataclass(frozen=True)
class TimeSpan:
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
    amounts = list(parts)
    return Metered(
        sum(amount.amount for amount in amounts), sum(amount.covered_seconds for amount in amounts)
    )


def subtract_spans(span: TimeSpan, others: Sequence[TimeSpan]) -> list[TimeSpan]:
    """What is left of a stretch when others are cut out of it."""
    remaining = [span]
    for other in others:
        pieces = []
        for piece in remaining:
            pieces.append(TimeSpan(piece.start_ns, min(piece.end_ns, other.start_ns)))
            pieces.append(TimeSpan(max(piece.start_ns, other.end_ns), piece.end_ns))
        remaining = [piece for piece in pieces if piece.end_ns > piece.start_ns]
    return remaining


def from_rate(times_ns: Ints, rates: Floats, span: TimeSpan) -> Metered:
    """The integral of a rate (watts to joules) by trapezoids; gaps are not bridged."""
    offsets_s, rates = _ordered(times_ns, rates, span)
    if not len(offsets_s):
        return Metered(0.0, 0.0)
    widths, middles = _overlaps(offsets_s, span)
    means = rates[:-1]
    if len(offsets_s) > 1:
        means = means + np.diff(rates) / np.diff(offsets_s) * (middles - offsets_s[:-1])
    known = np.diff(offsets_s) <= _longest_pause(offsets_s)
    amount = float((means * widths)[known].sum())
    inside = Metered(amount, float(widths[known].sum()))
    return total([inside, *_edges(offsets_s, (float(rates[0]), float(rates[-1])), span)])


def from_counter(times_ns: Ints, readings: Floats, span: TimeSpan) -> Metered:
    """How far a counter went; it counts on through gaps, and may begin again at zero."""
    offsets_s, readings = _ordered(times_ns, readings, span)
    if len(offsets_s) < 2:
        return Metered(0.0, 0.0)
    widths, _ = _overlaps(offsets_s, span)
    steps, pauses = np.diff(readings), np.diff(offsets_s)
    is_reset = steps < 0
    # What it shows after a fall was used since; what was used before it, and not yet seen, is lost.
    is_plausible = readings[1:] <= MAX_WATTS * pauses
    steps = np.where(is_reset, np.where(is_plausible, readings[1:], 0.0), steps)
    rates = steps / pauses
    inside = Metered(float((rates * widths).sum()), float(widths[~is_reset].sum()))
    return total([inside, *_edges(offsets_s, (float(rates[0]), float(rates[-1])), span)])


def _ordered(times_ns: Ints, values: Floats, span: TimeSpan) -> tuple[Floats, Floats]:
    """Finite values by seconds since the stretch began; whole nanoseconds are subtracted, none is lost."""
    finite = np.isfinite(values)
    moments, first = np.unique(times_ns[finite], return_index=True)
    offsets_s: Floats = (moments - span.start_ns) / 1e9
    return offsets_s, values[finite][first]


def _overlaps(offsets_s: Floats, span: TimeSpan) -> tuple[Floats, Floats]:
    """How much of the time between two looks lies in the stretch, and the middle of that time."""
    inside = np.clip(offsets_s, 0.0, span.seconds)
    return np.diff(inside), (inside[:-1] + inside[1:]) / 2


def _edges(offsets_s: Floats, rates: tuple[float, float], span: TimeSpan) -> list[Metered]:
    """What lies before the first look and after the last, at the rate nearest to it, if it is no gap."""
    distances = (float(offsets_s[0]), span.seconds - float(offsets_s[-1]))
    longest = _longest_pause(offsets_s)
    return [
        Metered(rate * min(distance, span.seconds), min(distance, span.seconds))
        for rate, distance in zip(rates, distances, strict=True)
        if 0 < distance <= longest
    ]


def _longest_pause(offsets_s: Floats) -> float:
    pauses = np.diff(offsets_s)
    typical_s = float(np.median(pauses)) if len(pauses) > 2 else DEFAULT_INTERVAL_S
    return MAX_GAP_INTERVALS * max(typical_s, DEFAULT_INTERVAL_S)
