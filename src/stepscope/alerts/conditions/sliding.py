"""Computes functions of sliding windows, for many points at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stepscope.alerts.conditions.recent import (
    BASELINE_WARM_UP,
    MIN_BASELINE,
    MIN_POINTS,
    MIN_SHARE,
    START_POINTS,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepscope.alerts.conditions.recent import Floats, Ints, RecentPoints

_SHARES = {"median": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
ROW_FUNCTIONS = frozenset({*_SHARES, "mean", "sum", "std"})
"""Functions that are computed from a table with one row for each window."""

FAST = frozenset({*ROW_FUNCTIONS, "last", "first", "count", "nonfinite", "min", "max"})
"""Functions that can be computed for many windows at once."""

_NEED_MIN_POINTS = FAST - {"last", "first", "count", "nonfinite", "sum"}


def sliding_values(function: str, recent: RecentPoints, points: int, ends: Ints) -> Floats:
    """Returns a function of the last `points` points at each end; NaN if unknown.

    An end is the number of kept points of the series at a moment.
    """
    totals = recent.total - len(recent) + ends
    if function in ("baseline", "start"):
        value = recent.baseline if function == "baseline" else recent.start
        needed = BASELINE_WARM_UP + MIN_BASELINE if function == "baseline" else START_POINTS
        return np.where(totals >= needed, np.nan if value is None else value, np.nan)
    low = max(int(ends[0]) - points, 0)
    values, at = recent.values[low : int(ends[-1])], ends - low
    if function in _OF_COUNTS:
        return _OF_COUNTS[function](values, at, np.maximum(at - points, 0))
    results = (_extremes if function in ("min", "max") else _of_rows)(function, values, points, at)
    if function in _NEED_MIN_POINTS:
        results = np.where(totals >= min(points, max(MIN_POINTS, MIN_SHARE * points)), results, np.nan)
    return results


def _count(_: Floats, at: Ints, begins: Ints) -> Floats:
    counts: Floats = (at - begins).astype(np.float64)
    return counts


def _nonfinite(values: Floats, at: Ints, begins: Ints) -> Floats:
    is_finite = np.isfinite(values)
    if is_finite.all():
        return np.zeros(len(at))
    before = np.concatenate([[0], np.cumsum(~is_finite)])
    counts: Floats = (before[at] - before[begins]).astype(np.float64)
    return counts


def _last(values: Floats, at: Ints, _: Ints) -> Floats:
    return _value_at(values, at - 1, at)


def _first(values: Floats, at: Ints, begins: Ints) -> Floats:
    return _value_at(values, begins, at)


def _value_at(values: Floats, places: Ints, at: Ints) -> Floats:
    if not len(values):
        return np.full(len(at), np.nan)
    chosen: Floats = np.where(at > 0, values[np.clip(places, 0, len(values) - 1)], np.nan)
    return chosen


def _extremes(function: str, values: Floats, points: int, at: Ints) -> Floats:
    """Returns the minimum or maximum finite value of each window, from windows of half the length."""
    choose, none = (np.minimum, np.inf) if function == "min" else (np.maximum, -np.inf)
    extremes = np.concatenate([np.full(points, none), np.where(np.isfinite(values), values, none)])
    length = 1
    while 2 * length <= points:
        extremes = choose(extremes[:-length], extremes[length:])
        length *= 2
    if length < points:
        extremes = choose(extremes[: length - points], extremes[points - length :])
    chosen = extremes[at]
    return np.where(np.isfinite(chosen), chosen, np.nan)


def _of_rows(function: str, values: Floats, points: int, at: Ints) -> Floats:
    padded = np.concatenate([np.full(points, np.nan), np.where(np.isfinite(values), values, np.nan)])
    rows = np.lib.stride_tricks.sliding_window_view(padded, points)[at]
    counts = points - np.count_nonzero(np.isnan(rows), axis=1)
    if function in _SHARES:
        # Sorting moves NaN to the end.
        rows = np.sort(rows, axis=1)
        place = _SHARES[function] * np.maximum(counts - 1, 0)
        below = place.astype(np.int64)
        above = np.minimum(below + 1, np.maximum(counts - 1, 0))
        row = np.arange(len(rows))
        lower, upper = rows[row, below], rows[row, above]
        results: Floats = lower + (upper - lower) * (place - below)
    else:
        results = _SUMS[function](rows, counts)
    return np.where(counts > 0, results, np.nan)


def _mean(rows: Floats, counts: Ints) -> Floats:
    means: Floats = np.nansum(rows, axis=1) / counts
    return means


def _std(rows: Floats, counts: Ints) -> Floats:
    deviations = rows - _mean(rows, counts)[:, None]
    spreads: Floats = np.sqrt(np.nansum(deviations * deviations, axis=1) / counts)
    return spreads


_OF_COUNTS: dict[str, Callable[[Floats, Ints, Ints], Floats]] = {
    "count": _count,
    "nonfinite": _nonfinite,
    "last": _last,
    "first": _first,
}
_SUMS: dict[str, Callable[[Floats, Ints], Floats]] = {
    "sum": lambda rows, _: np.nansum(rows, axis=1),
    "mean": _mean,
    "std": _std,
}
