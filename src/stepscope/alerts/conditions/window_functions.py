"""What the functions of conditions make of the points in a window."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from stepscope.alerts.conditions.recent import median, quantile, quantile_in_order
from stepscope.analysis.divergence import Start, divergence

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepscope.alerts.conditions.recent import Floats, Recent, Whole

EXACT = frozenset({"last", "first", "count", "nonfinite", "sum", "delta"})
"""Functions that say something of few points as well: no more of them could take it back."""

MAX_BLOCKS = 50
"""A slope looks at each pair of points; a longer window is first cut into the medians of so many blocks."""


MIN_OF_START = 0.9
"""A loss below this share of where it began may have been raised by a schedule, which rules do not know."""


def over_window(function: str, times_ns: Whole, values: Floats) -> float | None:
    """A function of some points; None where they do not tell.

    All but `last`, `first`, `count` and `nonfinite` leave out what is not finite: one bad point should not
    silence a rule, and there is a function to count them.
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


def over_newest(function: str, recent: Recent, points: int) -> Callable[[], float | None]:
    """Gives the same of the last so many points of a series, whenever it is asked.

    None as long as the series has too few points for the window: a mean of one point is none.
    """
    get = _over_newest(function, recent, points)
    if function in EXACT:
        return get
    return lambda: get() if recent.fills_points(points) else None


def over_seconds(function: str, recent: Recent, span_ns: int, now_ns: int) -> float | None:
    """The same of the points of the last seconds, as long as the series is old enough for the window."""
    if function not in EXACT and not recent.fills_time(span_ns, now_ns):
        return None
    within = recent.since(now_ns - span_ns)
    if function in _OF_SERIES:
        return _OF_SERIES[function](recent, within)
    return over_window(function, recent.times_ns[within], recent.values[within])


def _over_newest(function: str, recent: Recent, points: int) -> Callable[[], float | None]:
    share = _SHARES.get(function)
    if share is not None:
        return lambda: _quantile_of(recent.in_order(points), share)
    if function == "count":
        return lambda: float(min(len(recent), points))

    def over_points() -> float | None:
        within = recent.newest(points)
        if function in _OF_SERIES:
            return _OF_SERIES[function](recent, within)
        return over_window(function, recent.times_ns[within], recent.values[within])

    return over_points


def _quantile_of(ordered: Floats, share: float) -> float | None:
    return quantile_in_order(ordered, share) if len(ordered) else None


def _divergence(recent: Recent, within: slice) -> float | None:
    """How far a loss has risen above the level before, where it diverges; 0 where it does not."""
    values, start = recent.values[within], recent.start
    is_finite = np.isfinite(values)
    if start is None:
        return None
    least = MIN_OF_START * start if start > 0 else start
    found = divergence(
        values[is_finite],
        recent.steps[within][is_finite],
        Start(start, is_in_window=recent.total == len(values)),
        least_level=least,
    )
    if found is None:
        return 0.0
    recent.last_divergence = (found.level, found.value)
    return found.value - found.level


def _recovery(recent: Recent, within: slice) -> float | None:
    """How much of the last divergence the loss has made good: 0 nothing, 1 all, or that there was none."""
    values = recent.values[within]
    values = values[np.isfinite(values)]
    if not len(values):
        return None
    if recent.last_divergence is None:
        return 1.0
    level, value = recent.last_divergence
    return (value - median(values)) / (value - level)


def _highest_before(recent: Recent, within: slice) -> float | None:
    """The greatest finite value before the window."""
    before = recent.values[: within.start]
    before = before[np.isfinite(before)]
    return float(before.max()) if len(before) else None


def _delta(_: Floats, values: Floats) -> float:
    return float(values[-1] - values[0])


def _rate(seconds: Floats, values: Floats) -> float | None:
    return float(values[-1] - values[0]) / float(seconds[-1]) if seconds[-1] > 0 else None


def _slope(seconds: Floats, values: Floats) -> float | None:
    """The median of the slopes between all pairs of points (Theil and Sen)."""
    if len(values) > MAX_BLOCKS:
        size = len(values) // MAX_BLOCKS
        blocks = slice(len(values) - size * MAX_BLOCKS, None)
        seconds = np.median(seconds[blocks].reshape(MAX_BLOCKS, size), axis=1)
        values = np.median(values[blocks].reshape(MAX_BLOCKS, size), axis=1)
    first, second = np.triu_indices(len(values), 1)
    run = seconds[second] - seconds[first]
    rises = run > 0
    if not rises.any():
        return None
    return median((values[second] - values[first])[rises] / run[rises])


_OF_TIMES: dict[str, Callable[[Floats, Floats], float | None]] = {
    "delta": _delta,
    "rate": _rate,
    "slope": _slope,
}
_OF_SERIES: dict[str, Callable[[Recent, slice], float | None]] = {
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
