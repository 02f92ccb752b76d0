"""`PerformanceAnalyzer`: trend, statistics and anomalies of a list of figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from stepscope.analysis.linear_fit import linear_fit
from stepscope.analysis.robust import MAD_TO_SIGMA, block_edges, block_medians
from stepscope.analysis.trends import rank_trend, slope_of
from stepscope.errors import ConfigError
from stepscope.guard import shown
from stepscope.recorder.values import as_number

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

SIGNIFICANT = 0.05
MAX_BLOCKS = 400
"""The robust slope compares all pairs of points, so a longer series is reduced to medians of blocks."""
NEIGHBOURS = 25
"""A value is compared with the median of this many values before it and after it."""
PIECE = 8192
"""Values whose neighbours are compared at a time, so that memory stays small."""
MIN_VALUES = 5
PERCENTILES = (50, 95, 99)


class PerformanceAnalyzer:
    """Analyses figures over time: a list of mappings with `timestamp`, `loss`, `cpu_percent`, `gpu_memory`.

        analyzer = PerformanceAnalyzer(MetricsDatabase().get_training_metrics("mnist"))
        print(analyzer.analyze_loss_trend()["trend"], analyzer.detect_anomalies())

    A mapping without a figure, or with one that is not finite, is left out of the analysis of that figure.
    """

    def __init__(self, metrics_history: Iterable[Mapping[str, Any]]) -> None:
        is_list = isinstance(metrics_history, Iterable) and not isinstance(metrics_history, Mapping | str)
        self.metrics_history = list(metrics_history) if is_list else []
        if not is_list or not all(isinstance(metrics, Mapping) for metrics in self.metrics_history):
            raise ConfigError(
                f"argument: metrics_history is {shown(metrics_history)}; it must be a list of mappings, such "
                "as {'timestamp': 1.0, 'loss': 0.5}."
            )

    def analyze_loss_trend(self) -> dict[str, Any]:
        """How the loss changes per second: `analyze_trend("loss")`."""
        return self.analyze_trend("loss")

    def analyze_trend(self, metric: str) -> dict[str, Any]:
        """How a figure changes per second: slope, explained variance, probability of chance, direction.

        `p_value` is that of least squares, which takes the values as independent. `robust` has the median
        slope over all pairs of points (Theil and Sen) with its 95% interval, and the test of Mann and Kendall
        (`tau`, `p_value`), which outliers and smoothed values do not mislead. Without timestamps, the slope
        is per entry. None and "unknown" for fewer than three values.
        """
        times, values = self._series(metric)
        fit = linear_fit(times, values)
        if fit is None:
            unknown = dict.fromkeys(("slope", "intercept", "r_squared", "p_value", "robust"))
            return {**unknown, "trend": "unknown", "significance": "not_significant", "points": len(values)}
        is_significant = fit.p_value < SIGNIFICANT
        return {
            "slope": fit.slope,
            "intercept": fit.intercept,
            "r_squared": fit.r_squared,
            "p_value": fit.p_value,
            "trend": _direction(fit.slope),
            "significance": "significant" if is_significant else "not_significant",
            "points": len(values),
            "robust": _robust_trend(times, values),
        }

    def analyze_resource_usage(self) -> dict[str, dict[str, float]]:
        """Mean, standard deviation, extremes and percentiles of processors and memory; empty without any."""
        return {
            "cpu_stats": _statistics(self._series("cpu_percent")[1]),
            "memory_stats": _statistics(self._series("memory_percent")[1]),
            "gpu_stats": _statistics(self._series("gpu_memory")[1]),
        }

    def detect_anomalies(self, metric: str = "loss", threshold: float = 6.0) -> list[dict[str, Any]]:
        """Values far from their neighbours, or not finite: index, timestamp, value, z_score, robust_z.

        `robust_z` is the distance from the median of the neighbours in units of the usual distance, and must
        exceed `threshold`; a loss that falls steadily has none. `z_score` is the distance from the mean in
        standard deviations, for comparison; both are None for a value that is not finite.
        """
        limit = as_number(threshold)
        if limit is None or not limit > 0:
            raise ConfigError(f"argument: threshold is {shown(threshold)}; it must be a number above 0.")
        indices, values = self._values(metric)
        is_finite = np.isfinite(values)
        robust_z, z_scores = np.full(len(values), np.nan), np.full(len(values), np.nan)
        finite = values[is_finite]
        if len(finite) >= MIN_VALUES:
            robust_z[is_finite] = _robust_distances(finite)
            deviation = float(finite.std())
            z_scores[is_finite] = (finite - finite.mean()) / deviation if deviation else 0.0
        return [
            {
                "index": indices[place],
                "timestamp": self.metrics_history[indices[place]].get("timestamp"),
                metric: float(values[place]),
                "z_score": float(z_scores[place]) if is_finite[place] else None,
                "robust_z": float(robust_z[place]) if is_finite[place] else None,
            }
            for place in range(len(values))
            if not is_finite[place] or abs(robust_z[place]) > limit
        ]

    def _values(self, name: str) -> tuple[list[int], Floats]:
        """The figures of a name, and their places in the history."""
        numbers = [_number(metrics.get(name)) for metrics in self.metrics_history]
        indices = [place for place, number in enumerate(numbers) if number is not None]
        return indices, np.array([numbers[place] for place in indices], dtype=np.float64)

    def _series(self, name: str) -> tuple[Floats, Floats]:
        """The times and values of a figure, as far as they are finite."""
        indices, values = self._values(name)
        times = [as_number(self.metrics_history[place].get("timestamp")) for place in indices]
        x = np.array(indices if None in times else times, dtype=np.float64)
        is_finite = np.isfinite(values) & np.isfinite(x)
        return x[is_finite], values[is_finite]


def _number(value: Any) -> float | None:
    """A figure as a number; of several GPUs, their sum."""
    if not isinstance(value, Mapping):
        return as_number(value)
    parts = []
    for gpu in value.values():
        figures = gpu if isinstance(gpu, Mapping) else {"memory_used_mb": gpu}
        number = as_number(figures.get("memory_used_mb", figures.get("memory_allocated")))
        parts += [] if number is None else [number]
    return sum(parts) if parts else None


def _direction(slope: float) -> str:
    if slope == 0:
        return "flat"
    return "decreasing" if slope < 0 else "increasing"


def _robust_trend(times: Floats, values: Floats) -> dict[str, Any] | None:
    order = np.argsort(times, kind="stable")
    times, values = times[order] - times.min(), values[order]
    if len(values) > MAX_BLOCKS:
        edges = block_edges(len(values), MAX_BLOCKS, 1)
        times, values = block_medians(times, edges), block_medians(values, edges)
    slope, ranks = slope_of(times, values, confidence=1 - SIGNIFICANT), rank_trend(times, values)
    if slope is None or ranks is None:
        return None
    is_certain = slope.low > 0 or slope.high < 0
    return {
        "slope": slope.value,
        "low": slope.low,
        "high": slope.high,
        "tau": ranks.tau,
        "p_value": ranks.p_value,
        "trend": _direction(slope.value),
        "significance": "significant" if is_certain else "not_significant",
    }


def _statistics(values: Floats) -> dict[str, float]:
    if not len(values):
        return {}
    percentiles = np.percentile(values, PERCENTILES)
    return {
        "mean": float(values.mean()),
        "std": float(values.std()),
        "min": float(values.min()),
        "max": float(values.max()),
        **{f"p{name}": float(value) for name, value in zip(PERCENTILES, percentiles, strict=True)},
    }


def _robust_distances(values: Floats) -> Floats:
    """The distance of each value from the median around it, in units of the usual distance there.

    Before the first value, the series is continued in its direction, so that a loss that falls quickly at its
    start is not an anomaly. The last values are compared with those before them.
    """
    width = min(NEIGHBOURS, (len(values) - 1) // 2)
    continued = np.concatenate((2 * values[0] - values[width:0:-1], values))
    windows = np.lib.stride_tricks.sliding_window_view(continued, 2 * width + 1)
    medians, spreads = np.empty(len(values)), np.empty(len(values))
    for first in range(0, len(windows), PIECE):
        piece = windows[first : first + PIECE]
        middle = np.median(piece, axis=1)
        place = slice(first, first + len(piece))
        medians[place] = middle
        spreads[place] = MAD_TO_SIGMA * np.median(np.abs(piece - middle[:, None]), axis=1)
    medians[len(windows) :], spreads[len(windows) :] = medians[len(windows) - 1], spreads[len(windows) - 1]
    distances: Floats = values - medians
    # Without noise, differences as small as rounding count as none.
    floor = 1e-9 * max(float(np.abs(values).max()), 1e-300)
    usual = MAD_TO_SIGMA * float(np.median(np.abs(distances)))
    scaled: Floats = distances / np.maximum(spreads, max(usual, floor))
    return scaled
