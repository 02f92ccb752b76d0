"""The functions of conditions over the points of a window."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from stepscope.alerts.conditions.recent import median, quantile, quantile_of_sorted
from stepscope.analysis.divergence import Start, divergence

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepscope.alerts.conditions.recent import Floats, Ints, RecentPoints

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
    """Returns the median of the slopes between all pairs of points (Theil-Sen)."""
    if len(values) > MAX_BLOCKS:
        size = len(values) // MAX_BLOCKS
        blocks = slice(len(values) - size * MAX_BLOCKS, None)
        seconds = np.median(seconds[blocks].reshape(MAX_BLOCKS, size), axis=1)
        values = np.median(values[blocks].reshape(MAX_BLOCKS, size), axis=1)
    first, second = np.triu_indices(len(values), 1)
    elapsed = seconds[second] - seconds[first]
    has_elapsed = elapsed > 0
    if not has_elapsed.any():
        return None
    return median((values[second] - values[first])[has_elapsed] / elapsed[has_elapsed])


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
_SHARES = {"median": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
_OF_VALUES: dict[str, Callable[[Floats], float]] = {
    "mean": np.mean,
    "min": np.min,
    "max": np.max,
    "sum": np.sum,
    "std": np.std,
    **{name: partial(quantile, share=share) for name, share in _SHARES.items()},
}
