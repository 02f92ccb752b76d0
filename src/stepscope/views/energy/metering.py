"""Adds up what was used while a run was live, from a counter or from a sampled rate."""

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
"""A pause longer than this many usual intervals is a gap, in which usage is unknown."""

DEFAULT_INTERVAL_S = 1.0
"""The sampling interval assumed for a series too short to show its own."""

MAX_WATTS = 20_000.0
"""More than the devices of one host draw; a counter value after a reset that implies more is ignored."""


@dataclass(frozen=True)
class TimeSpan:
    """A time during which a run was live, in nanoseconds since the epoch."""

    start_ns: int
    end_ns: int

    @property
    def seconds(self) -> float:
        """The length of the span."""
        return max(self.end_ns - self.start_ns, 0) / 1e9


@dataclass(frozen=True)
class Metered:
    """An amount, and how much of the time its measurement covers."""

    amount: float
    covered_seconds: float


def total(parts: Iterable[Metered]) -> Metered:
    """Returns the sum of several amounts and of the time they cover."""
    amounts = list(parts)
    return Metered(
        sum(amount.amount for amount in amounts), sum(amount.covered_seconds for amount in amounts)
    )


def subtract_spans(span: TimeSpan, others: Sequence[TimeSpan]) -> list[TimeSpan]:
    """Returns the parts of a span that the other spans do not cover."""
    remaining = [span]
    for other in others:
        pieces = []
        for piece in remaining:
            pieces.append(TimeSpan(piece.start_ns, min(piece.end_ns, other.start_ns)))
            pieces.append(TimeSpan(max(piece.start_ns, other.end_ns), piece.end_ns))
        remaining = [piece for piece in pieces if piece.end_ns > piece.start_ns]
    return remaining


def from_rate(times_ns: Ints, rates: Floats, span: TimeSpan) -> Metered:
    """Integrates a rate (watts to joules) with the trapezoidal rule; gaps are left out."""
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
    """Returns how far a counter advanced; it keeps counting in gaps and may restart at zero."""
    offsets_s, readings = _ordered(times_ns, readings, span)
    if len(offsets_s) < 2:
        return Metered(0.0, 0.0)
    widths, _ = _overlaps(offsets_s, span)
    steps, pauses = np.diff(readings), np.diff(offsets_s)
    is_reset = steps < 0
    # After a reset, the counter shows what was used since; what was used between the last reading and the
    # reset is lost.
    is_plausible = readings[1:] <= MAX_WATTS * pauses
    steps = np.where(is_reset, np.where(is_plausible, readings[1:], 0.0), steps)
    rates = steps / pauses
    inside = Metered(float((rates * widths).sum()), float(widths[~is_reset].sum()))
    return total([inside, *_edges(offsets_s, (float(rates[0]), float(rates[-1])), span)])


def _ordered(times_ns: Ints, values: Floats, span: TimeSpan) -> tuple[Floats, Floats]:
    """Returns finite values by seconds since the span began, computed from whole nanoseconds."""
    finite = np.isfinite(values)
    moments, first = np.unique(times_ns[finite], return_index=True)
    offsets_s: Floats = (moments - span.start_ns) / 1e9
    return offsets_s, values[finite][first]


def _overlaps(offsets_s: Floats, span: TimeSpan) -> tuple[Floats, Floats]:
    """Returns how much of the time between two readings is in the span, and the middle of that time."""
    inside = np.clip(offsets_s, 0.0, span.seconds)
    return np.diff(inside), (inside[:-1] + inside[1:]) / 2


def _edges(offsets_s: Floats, rates: tuple[float, float], span: TimeSpan) -> list[Metered]:
    """Returns usage before the first and after the last reading, at the nearest rate; none in a gap."""
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
