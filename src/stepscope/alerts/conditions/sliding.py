"""Works out a function of the window before each of many points at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stepscope.alerts.conditions.recent import FEWEST, MIN_POINTS, MIN_SHARE, STARTED, WARM_UP

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepscope.alerts.conditions.recent import Floats, Recent, Whole

_SHARES = {"median": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
OF_ROWS = frozenset({*_SHARES, "mean", "sum", "std"})
"""Functions that have each window before them as a row of a table."""

FAST = frozenset({*OF_ROWS, "last", "first", "count", "nonfinite", "min", "max"})
"""Functions that can be worked out for many windows at once."""

_NEED_ENOUGH = FAST - {"last", "first", "count", "nonfinite", "sum"}


def over_each(function: str, recent: Recent, points: int, ends: Whole) -> Floats:
    """A function of the last so many points at each of some ends; NaN where it is not known.

    An end is how many of the kept points of the series had come by then.
    """
    totals = recent.total - len(recent) + ends
    if function in ("baseline", "start"):
        value = recent.baseline if function == "baseline" else recent.start
        needed = WARM_UP + FEWEST if function == "baseline" else STARTED
        return np.where(totals >= needed, np.nan if value is None else value, np.nan)
    low = max(int(ends[0]) - points, 0)
    values, at = recent.values[low : int(ends[-1])], ends - low
    if function in _OF_COUNTS:
        return _OF_COUNTS[function](values, at, np.maximum(at - points, 0))
    found = (_extremes if function in ("min", "max") else _of_rows)(function, values, points, at)
    if function in _NEED_ENOUGH:
        found = np.where(totals >= min(points, max(MIN_POINTS, MIN_SHARE * points)), found, np.nan)
    return found


def _count(_: Floats, at: Whole, begins: Whole) -> Floats:
    counts: Floats = (at - begins).astype(np.float64)
    return counts


def _nonfinite(values: Floats, at: Whole, begins: Whole) -> Floats:
    is_finite = np.isfinite(values)
    if is_finite.all():
        return np.zeros(len(at))
    before = np.concatenate([[0], np.cumsum(~is_finite)])
    counts: Floats = (before[at] - before[begins]).astype(np.float64)
    return counts


def _last(values: Floats, at: Whole, _: Whole) -> Floats:
    return _value_at(values, at - 1, at)


def _first(values: Floats, at: Whole, begins: Whole) -> Floats:
    return _value_at(values, begins, at)


def _value_at(values: Floats, places: Whole, at: Whole) -> Floats:
    if not len(values):
        return np.full(len(at), np.nan)
    chosen: Floats = np.where(at > 0, values[np.clip(places, 0, len(values) - 1)], np.nan)
    return chosen


def _extremes(function: str, values: Floats, points: int, at: Whole) -> Floats:
    """The least or greatest finite value of each window, from those of windows of half its length."""
    choose, none = (np.minimum, np.inf) if function == "min" else (np.maximum, -np.inf)
    found = np.concatenate([np.full(points, none), np.where(np.isfinite(values), values, none)])
    length = 1
    while 2 * length <= points:
        found = choose(found[:-length], found[length:])
        length *= 2
    if length < points:
        found = choose(found[: length - points], found[points - length :])
    chosen = found[at]
    return np.where(np.isfinite(chosen), chosen, np.nan)


def _of_rows(function: str, values: Floats, points: int, at: Whole) -> Floats:
    padded = np.concatenate([np.full(points, np.nan), np.where(np.isfinite(values), values, np.nan)])
    rows = np.lib.stride_tricks.sliding_window_view(padded, points)[at]
    counts = points - np.count_nonzero(np.isnan(rows), axis=1)
    if function in _SHARES:
        # NaN is sorted behind all others.
        rows = np.sort(rows, axis=1)
        place = _SHARES[function] * np.maximum(counts - 1, 0)
        below = place.astype(np.int64)
        above = np.minimum(below + 1, np.maximum(counts - 1, 0))
        row = np.arange(len(rows))
        lower, upper = rows[row, below], rows[row, above]
        found: Floats = lower + (upper - lower) * (place - below)
    else:
        found = _SUMS[function](rows, counts)
    return np.where(counts > 0, found, np.nan)


def _mean(rows: Floats, counts: Whole) -> Floats:
    means: Floats = np.nansum(rows, axis=1) / counts
    return means


def _std(rows: Floats, counts: Whole) -> Floats:
    deviations = rows - _mean(rows, counts)[:, None]
    spreads: Floats = np.sqrt(np.nansum(deviations * deviations, axis=1) / counts)
    return spreads


_OF_COUNTS: dict[str, Callable[[Floats, Whole, Whole], Floats]] = {
    "count": _count,
    "nonfinite": _nonfinite,
    "last": _last,
    "first": _first,
}
_SUMS: dict[str, Callable[[Floats, Whole], Floats]] = {
    "sum": lambda rows, _: np.nansum(rows, axis=1),
    "mean": _mean,
    "std": _std,
}
