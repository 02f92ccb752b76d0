"""Turns stored rows of a start into rows for another program: its names, its units, and not too many."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from numpy.typing import NDArray

    from stepscope.exporters.base import Table
    from stepscope.mirrors.metric_names import MetricName, MetricNames
    from stepscope.mirrors.run_starts import RunStart
    from stepscope.schema.series import Axis, Source


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
        self._system_every_s, self._points_per_second = system_every_s, points_per_second
        self._thinning = Thinning()
        self._logged_series: set[tuple[Source, str]] = set()
        self._skipped: dict[tuple[Source, str], MetricRow] = {}
        """The newest value of each series, where it was not passed on."""

    def of(self, table: Table) -> list[MetricRow]:
        """The rows of a table that are passed on; rows without a value are left out."""
        source = table.source
        named = [(place, key, self.names.of(source, key)) for place, key in enumerate(table.keys)]
        known = [(place, key, name) for place, key, name in named if name is not None]
        if source.axis == "step":
            self._logged_series.update((source, key) for _, key, _ in known)
            interval_s = len(self._logged_series) / self._points_per_second
        else:
            interval_s = self._system_every_s
        columns = [(place, key, name, self._selected(table, key, interval_s)) for place, key, name in known]
        rows = _rows(table, columns, self.start.started_ns)
        if source.axis == "step" and interval_s:
            self._keep_skipped(table, columns)
        return rows

    def last_skipped(self) -> list[MetricRow]:
        """The last values of series that were not passed on; each is returned once."""
        skipped, self._skipped = self._skipped, {}
        return list(skipped.values())

    def _selected(self, table: Table, key: str, interval_s: float) -> NDArray[np.bool_]:
        return self._thinning.selected((table.source, key), table.times_ns, interval_s)

    def _keep_skipped(
        self, table: Table, columns: Sequence[tuple[int, str, MetricName, NDArray[np.bool_]]]
    ) -> None:
        for place, key, name, selected in columns:
            series = (table.source, key)
            if not len(selected) or selected[-1]:
                self._skipped.pop(series, None)
            else:
                value = float(table.values[-1, place]) * name.factor
                step, time_s = int(table.steps[-1]), int(table.times_ns[-1]) / 1e9
                self._skipped[series] = MetricRow("step", step, time_s, {name.name: value})


def _rows(
    table: Table, columns: Sequence[tuple[int, str, MetricName, NDArray[np.bool_]]], started_ns: int
) -> list[MetricRow]:
    if not columns:
        return []
    axis = table.source.axis
    times_s = (table.times_ns / 1e9).tolist()
    at = table.steps.tolist() if axis == "step" else ((table.times_ns - started_ns) / 1e9).tolist()
    names = [name.name for _, _, name, _ in columns]
    factors = np.array([name.factor for _, _, name, _ in columns])
    places = [place for place, _, _, _ in columns]
    rows = np.flatnonzero(np.any([selected for _, _, _, selected in columns], axis=0))
    masks = np.stack([selected[rows] for _, _, _, selected in columns], axis=1)
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
