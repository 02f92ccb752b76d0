"""Turns stored rows of a start into rows for another program: its names, its units, and not too many."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from stepscope.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from numpy.typing import NDArray

    from stepscope.exporters.base import Table
    from stepscope.mirrors.metric_names import MetricName, MetricNames
    from stepscope.mirrors.run_starts import RunStart
    from stepscope.schema.series import Axis, Source

BURST_S = 10.0
"""How many seconds of the limit a burst may use at once. A start begins with all of them."""


def check_interval(exporter: str, system_every_s: float) -> None:
    """Raises ConfigError for an interval of machine metrics that cannot be used."""
    if not 0 <= system_every_s < math.inf:
        option = f"exporters.{exporter}.system_every_s"
        raise ConfigError(f"{option} is {system_every_s:g}; it must be a number of seconds, 0 or more.")


class Thinning:
    """Selects the first value of each interval. Which ones depends on their times alone, not on the clock."""

    def __init__(self) -> None:
        self._last: dict[Hashable, int] = {}
        """The number of the interval of the newest value of each series."""

    def selected(self, series: Hashable, times_ns: NDArray[np.int64], interval_s: float) -> NDArray[np.bool_]:
        """Which values of a series are passed on, of those that come next; an interval of 0 means all."""
        interval_ns = int(interval_s * 1e9)
        if interval_ns <= 0 or len(times_ns) == 0:
            return np.ones(len(times_ns), np.bool_)
        intervals = times_ns // interval_ns
        before = np.concatenate(([self._last.get(series, -1)], intervals[:-1]))
        self._last[series] = int(intervals[-1])
        selected: NDArray[np.bool_] = intervals != before
        return selected


class PointBudget:
    """Limits the logged values of a start: bursts pass whole while the average stays below the limit.

    It depends on the times of the values alone, not on the clock. Where there are too many, rows at equal
    distances pass, each whole, the newest and those with the lowest and the highest values among them. Keys
    that are logged rarely have a share of their own, so that frequent ones do not displace them.
    """

    def __init__(self, points_per_second: float) -> None:
        self._rate = points_per_second
        self._left = points_per_second * BURST_S
        self._newest_ns: int | None = None
        self._passed_ns: dict[Hashable, int] = {}
        """When the newest row passed, for each source and set of keys."""
        self._columns = 0
        """Columns of all sources and sets of keys: a second of the limit is shared among them."""

    def selected(self, table: Table) -> NDArray[np.bool_]:
        """Which rows of a table are passed on."""
        rows, columns = table.values.shape
        if not rows or not columns or math.isinf(self._rate):
            return np.ones(rows, np.bool_)
        series = (table.source, tuple(table.keys))
        is_new = series not in self._passed_ns
        self._columns += columns if is_new else 0
        first_ns, last_ns = int(table.times_ns[0]), int(table.times_ns[-1])
        left = self._left_at(first_ns, last_ns)
        share = 1 if is_new else self._share(self._passed_ns[series], first_ns, last_ns)
        selected = _spread(table.values, min(rows, max(int(left // columns), share)), has_first=is_new)
        passed = int(np.count_nonzero(selected))
        self._left = min(self._rate * BURST_S, left - passed * columns)
        if passed:
            self._passed_ns[series] = last_ns
        return selected

    def _left_at(self, first_ns: int, last_ns: int) -> float:
        """What is left for rows of this time: a burst at most, and the limit for each second of the rows."""
        newest_ns = first_ns if self._newest_ns is None else self._newest_ns
        pause_s, rows_s = (first_ns - newest_ns) / 1e9, (last_ns - max(first_ns, newest_ns)) / 1e9
        # Ranks are read one after another; only a clock that was set back is far behind.
        self._newest_ns = last_ns if last_ns < newest_ns - BURST_S * 1e9 else max(last_ns, newest_ns)
        left = min(self._rate * BURST_S, self._left + self._rate * max(pause_s, 0.0))
        return left + self._rate * max(rows_s, 0.0)

    def _share(self, passed_ns: int, first_ns: int, last_ns: int) -> int:
        """How many rows of this time a series may pass, whatever the others have used."""
        interval_s = self._columns / self._rate
        # The pause is negative if the clock was set back; after a long one a share is not more than a burst.
        pause_s = min(abs(first_ns - passed_ns) / 1e9, max(BURST_S, interval_s))
        return int((pause_s + max(last_ns - first_ns, 0) / 1e9) / interval_s)


def _spread(values: NDArray[np.float64], count: int, *, has_first: bool) -> NDArray[np.bool_]:
    """Selects about `count` rows: of equal parts the last one each, or the lowest or highest of all rows."""
    rows = len(values)
    selected = np.full(rows, count == rows)
    if 0 < count < rows:
        places = np.arange(1, count + 1) * rows // count - 1
        if count > 2:
            extremes = np.unique([values.argmin(axis=0), values.argmax(axis=0)])  # NaN is both
            places[np.searchsorted(places, extremes)] = extremes
            selected[-1] = True
        selected[places if count > 1 or not has_first else 0] = True
        selected[0] |= has_first
    return selected


class MetricRow(NamedTuple):
    """Values of one step, or of one reading of the machine."""

    axis: Axis
    at: float
    """The step; of the machine, the seconds since the start."""
    time_s: float
    """Seconds since the epoch."""
    values: dict[str, float]


class MetricRows:
    """The rows of one start."""

    def __init__(
        self,
        start: RunStart,
        names: MetricNames,
        *,
        system_every_s: float,
        points_per_second: float = float("inf"),
    ) -> None:
        """`points_per_second` limits the logged values of a start, all its metrics together."""
        self.start, self.names = start, names
        self.left_out = 0
        """Logged values that were not passed on, because there were too many."""
        self._system_every_s = system_every_s
        self._thinning = Thinning()
        self._budget = PointBudget(points_per_second)
        self._skipped: dict[tuple[Source, str], MetricRow] = {}
        """The newest value of each series, where it was not passed on."""

    def of(self, table: Table) -> list[MetricRow]:
        """The rows of a table that are passed on; rows without a value are left out."""
        named = [(place, key, self.names.of(table.source, key)) for place, key in enumerate(table.keys)]
        known = [(place, key, name) for place, key, name in named if name is not None]
        if table.source.axis == "step":
            selected = self._budget.selected(table)
            self._keep_skipped(table, known, selected)
            columns = [(place, name, selected) for place, _, name in known]
        else:
            columns = [(place, name, self._readings(table, key)) for place, key, name in known]
        return _rows(table, columns, self.start.started_ns)

    def last_skipped(self) -> list[MetricRow]:
        """The last values of series that were not passed on; each is returned once."""
        skipped, self._skipped = self._skipped, {}
        self.left_out -= len(skipped)
        return list(skipped.values())

    def _readings(self, table: Table, key: str) -> NDArray[np.bool_]:
        return self._thinning.selected((table.source, key), table.times_ns, self._system_every_s)

    def _keep_skipped(
        self, table: Table, known: Sequence[tuple[int, str, MetricName]], selected: NDArray[np.bool_]
    ) -> None:
        self.left_out += len(known) * int(np.count_nonzero(~selected))
        for place, key, name in known if len(selected) else ():
            series = (table.source, key)
            if selected[-1]:
                self._skipped.pop(series, None)
            else:
                value = float(table.values[-1, place]) * name.factor
                step, time_s = int(table.steps[-1]), int(table.times_ns[-1]) / 1e9
                self._skipped[series] = MetricRow("step", step, time_s, {name.name: value})


def _rows(
    table: Table, columns: Sequence[tuple[int, MetricName, NDArray[np.bool_]]], started_ns: int
) -> list[MetricRow]:
    if not columns:
        return []
    axis = table.source.axis
    times_s = (table.times_ns / 1e9).tolist()
    at = table.steps.tolist() if axis == "step" else ((table.times_ns - started_ns) / 1e9).tolist()
    names = [name.name for _, name, _ in columns]
    factors = np.array([name.factor for _, name, _ in columns])
    places = [place for place, _, _ in columns]
    rows = np.flatnonzero(np.any([selected for _, _, selected in columns], axis=0))
    masks = np.stack([selected[rows] for _, _, selected in columns], axis=1)
    values = table.values[rows][:, places] * factors
    return [
        MetricRow(
            axis,
            at[row],
            times_s[row],
            {name: value for name, value, passed in zip(names, cells, mask, strict=True) if passed},
        )
        for row, cells, mask in zip(rows.tolist(), values.tolist(), masks.tolist(), strict=True)
    ]
