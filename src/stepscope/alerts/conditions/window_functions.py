"""The functions of conditions over the points of a window: of the newest one, or of many at once."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from stepscope.alerts.conditions.recent_points import (
    BASELINE_WARM_UP,
    MIN_BASELINE,
    START_POINTS,
    median,
    min_points_for,
    quantile,
    quantile_of_sorted,
)
from stepscope.analysis.loss.divergence import Start, divergence
from stepscope.analysis.robust import block_edges, block_medians
from stepscope.analysis.trends import median_slope

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepscope.alerts.conditions.recent_points import Floats, Ints, RecentPoints

_SHARES = {"median": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
ROW_FUNCTIONS = frozenset({*_SHARES, "mean", "sum", "std"})
"""Functions that are computed from a table with one row for each window."""

FAST = frozenset({*ROW_FUNCTIONS, "last", "first", "count", "nonfinite", "min", "max"})
"""Functions that can be computed for many windows at once."""

EXACT = frozenset({"last", "first", "count", "nonfinite", "sum", "delta"})
"""Functions that need no minimum number of points."""

MAX_BLOCKS = 50
"""A slope uses all pairs of points; a longer window is first reduced to the medians of this many blocks."""

MIN_OF_START = 0.9
"""A rise to less than this share of the start may come from a schedule, which rules do not know."""


def over_window(function: str, times_ns: Ints, values: Floats) -> float | None:
    """Returns a function of some points; None if there are too few.

    All functions except `last`, `first`, `count` and `nonfinite` ignore values that are not finite: one bad
    point must not disable a rule, and `nonfinite` counts them.
    """
    if function in ("count", "nonfinite"):
        return float(len(values) if function == "count" else np.count_nonzero(~np.isfinite(values)))
    if function in ("last", "first"):
        return float(values[-1 if function == "last" else 0]) if len(values) else None
    is_finite = np.isfinite(values)
    if not is_finite.all():
        times_ns, values = times_ns[is_finite], values[is_finite]
    if function in _OF_TIMES:
        return _OF_TIMES[function]((times_ns - times_ns[0]) / 1e9, values) if len(values) > 1 else None
    with np.errstate(over="ignore", invalid="ignore"):
        return float(_OF_VALUES[function](values)) if len(values) else None


def over_newest(function: str, recent: RecentPoints, points: int) -> Callable[[], float | None]:
    """Returns a callable that computes a function of the last points of a series.

    Its result is None while the series has too few points for the window.
    """
    get = _over_newest(function, recent, points)
    if function in EXACT:
        return get
    return lambda: get() if recent.has_points_for(points) else None


def over_seconds(function: str, recent: RecentPoints, span_ns: int, now_ns: int) -> float | None:
    """Returns a function of the points of the last seconds; None if the series is too short."""
    if function not in EXACT and not recent.has_time_for(span_ns, now_ns):
        return None
    within = recent.since(now_ns - span_ns)
    if function in _OF_SERIES:
        return _OF_SERIES[function](recent, within)
    return over_window(function, recent.times_ns[within], recent.values[within])


def _over_newest(function: str, recent: RecentPoints, points: int) -> Callable[[], float | None]:
    share = _SHARES.get(function)
    if share is not None:
        return lambda: _quantile_of(recent.sorted_values(points), share)
    if function == "count":
        return lambda: float(min(len(recent), points))

    def over_points() -> float | None:
        within = recent.newest(points)
        if function in _OF_SERIES:
            return _OF_SERIES[function](recent, within)
        return over_window(function, recent.times_ns[within], recent.values[within])

    return over_points


def _quantile_of(ordered: Floats, share: float) -> float | None:
    return quantile_of_sorted(ordered, share) if len(ordered) else None


def _divergence(recent: RecentPoints, within: slice) -> float | None:
    """Returns how far a diverging loss has risen above its earlier level; 0 if it does not diverge."""
    values, start = recent.values[within], recent.start
    is_finite = np.isfinite(values)
    if start is None:
        return None
    least = MIN_OF_START * start if start > 0 else start
    excursion = divergence(
        values[is_finite],
        recent.steps[within][is_finite],
        Start(start, is_in_window=recent.total == len(values)),
        least_level=least,
    )
    if excursion is None:
        return 0.0
    recent.last_divergence = (excursion.level, excursion.value)
    return excursion.value - excursion.level


def _recovery(recent: RecentPoints, within: slice) -> float | None:
    """Returns how far the loss has come back from its last divergence: 0 not at all, 1 completely or none."""
    values = recent.values[within]
    values = values[np.isfinite(values)]
    if not len(values):
        return None
    if recent.last_divergence is None:
        return 1.0
    level, value = recent.last_divergence
    return (value - median(values)) / (value - level)


def _highest_before(recent: RecentPoints, within: slice) -> float | None:
    """Returns the greatest finite value before the window."""
    before = recent.values[: within.start]
    before = before[np.isfinite(before)]
    return float(before.max()) if len(before) else None


def _delta(_: Floats, values: Floats) -> float:
    return float(values[-1] - values[0])


def _rate(seconds: Floats, values: Floats) -> float | None:
    return float(values[-1] - values[0]) / float(seconds[-1]) if seconds[-1] > 0 else None


def _slope(seconds: Floats, values: Floats) -> float | None:
    edges = block_edges(len(values), MAX_BLOCKS, 1)
    return median_slope(block_medians(seconds, edges), block_medians(values, edges))


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
    return results if function in EXACT else np.where(totals >= min_points_for(points), results, np.nan)


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


_OF_TIMES: dict[str, Callable[[Floats, Floats], float | None]] = {
    "delta": _delta,
    "rate": _rate,
    "slope": _slope,
}
_OF_SERIES: dict[str, Callable[[RecentPoints, slice], float | None]] = {
    "divergence": _divergence,
    "highest_before": _highest_before,
    "recovery": _recovery,
}
_OF_VALUES: dict[str, Callable[[Floats], float]] = {
    "mean": np.mean,
    "min": np.min,
    "max": np.max,
    "sum": np.sum,
    "std": np.std,
    **{name: partial(quantile, share=share) for name, share in _SHARES.items()},
}
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
