"""Makes a window for the detectors from lists of figures, such as those of `MetricsDatabase`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from stepscope.analysis.build import ROWS, column_of
from stepscope.analysis.steady import steadiness_of
from stepscope.errors import ConfigError
from stepscope.guard import shown
from stepscope.recorder.values import as_number
from stepscope.schema.keys import STEP_SECONDS
from stepscope.schema.record import Event
from stepscope.schema.window import MachineFigures, RankWindow, Window

if TYPE_CHECKING:
    from numpy.typing import NDArray

Row = Mapping[str, Any]

OTHER_NAMES = {
    "data_loading_time": "phase/data_seconds",
    "data_time": "phase/data_seconds",
    "grad_norm": "gradient_norm",
    "lr": "learning_rate",
    "step_duration_seconds": STEP_SECONDS,
    "step_time": STEP_SECONDS,
    "training_time_per_step": STEP_SECONDS,
}
"""Names of figures in older documents, and the metrics that detectors read."""

LABELS = ("timestamp", "step", "segment", "rank", "host", "device")
SETUP_FIELDS = ("detect_anomaly", "not_updated", "mode")
"""A mapping with one of these is the recorded setup of a training."""
SETUP_EVENT = "census"


def window_of(training: Sequence[Row], system: Sequence[Row], model: Row) -> Window | None:
    """Returns the newest segment of a training as a window; None without any step."""
    if not training:
        return None
    segment = str(training[-1].get("segment", ""))
    by_rank: dict[int, list[Row]] = {}
    for row in training:
        if str(row.get("segment", "")) == segment:
            by_rank.setdefault(_whole(row.get("rank"), "rank") or 0, []).append(row)
    ranks = tuple(_rank_window(rank, rows) for rank, rows in sorted(by_rank.items()))
    events: tuple[Event, ...] = ()
    if any(name in model for name in SETUP_FIELDS):
        events = tuple(
            Event(SETUP_EVENT, int(rank.times[0] * 1e9), 0, rank.rank, segment, dict(model)) for rank in ranks
        )
    return Window("", segment, ranks, _machine(system, ranks[0]), events)


def rows_of(metrics: Any, name: str) -> list[Row]:
    """Returns figures as a list of mappings; they may also be one mapping of values, or of lists."""
    if metrics is None:
        return []
    if isinstance(metrics, Mapping):
        columns = {key: _values(value) for key, value in metrics.items()}
        count = max((len(values) for values in columns.values()), default=0)
        return [
            {key: values[place] for key, values in columns.items() if place < len(values)}
            for place in range(count)
        ]
    rows = list(metrics) if isinstance(metrics, Iterable) and not isinstance(metrics, str | bytes) else None
    if rows is None or not all(isinstance(row, Mapping) for row in rows):
        raise ConfigError(
            f"argument: {name} is {shown(metrics)}; it must be a list of mappings, such as "
            "{'step': 1, 'loss': 0.5}, or a mapping of lists."
        )
    return rows


def _values(value: Any) -> Sequence[Any]:
    is_list = isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes)
    return value if is_list and np.ndim(value) == 1 else (value,)


def _rank_window(rank: int, all_rows: Sequence[Row]) -> RankWindow:
    rows = all_rows[-ROWS:]
    is_whole = len(rows) == len(all_rows)
    numbers = [_whole(row.get("step"), "step") for row in rows]
    own = np.array([place if number is None else number for place, number in enumerate(numbers)], np.int64)
    steps, places = np.unique(own, return_inverse=True)
    values: dict[str, tuple[list[int], list[float]]] = {}
    for place, row in zip(places.tolist(), rows, strict=True):
        for key, number in _numbers(row):
            at, kept = values.setdefault(key, ([], []))
            at.append(place)
            kept.append(number)
    columns = {
        key: column_of(np.array(at), np.array(kept), len(steps), is_time=key.endswith("_seconds"))
        for key, (at, kept) in values.items()
    }
    times = np.zeros(len(steps))
    times[places] = _times(rows, np.arange(len(rows), dtype=float))
    if STEP_SECONDS in columns and not any("timestamp" in row for row in rows):
        times = np.cumsum(np.nan_to_num(columns[STEP_SECONDS].values))
    host = str(rows[0].get("host", ""))
    steadiness = steadiness_of(columns, len(steps), is_whole=is_whole)
    return RankWindow(rank, host, steps, times, columns, *steadiness, is_whole=is_whole)


def _machine(rows: Sequence[Row], rank: RankWindow) -> tuple[MachineFigures, ...]:
    """Returns the figures of the machine; those without a time are spread evenly over the steps."""
    times = _times(rows, np.linspace(rank.times[0], rank.times[-1], len(rows)))
    series: dict[tuple[str, int | None, str, str], tuple[list[float], list[float]]] = {}
    for time, row in zip(times.tolist(), rows, strict=True):
        owner = _whole(row.get("rank"), "rank")
        host, device = str(row.get("host", rank.host)), str(row.get("device", ""))
        for key, number in _numbers(row):
            if np.isfinite(number):
                at, kept = series.setdefault((key, owner, host, device), ([], []))
                at.append(time)
                kept.append(number)
    return tuple(
        MachineFigures(*labels, np.array(at), np.array(kept)) for labels, (at, kept) in series.items()
    )


def _numbers(row: Row) -> list[tuple[str, float]]:
    """Returns the figures of a row that are numbers, by the names that detectors know."""
    numbers = [
        (OTHER_NAMES.get(str(key), str(key)), as_number(value))
        for key, value in row.items()
        if key not in LABELS
    ]
    return [(key, number) for key, number in numbers if number is not None]


def _times(rows: Sequence[Row], otherwise: NDArray[np.float64]) -> NDArray[np.float64]:
    known = [as_number(row.get("timestamp")) for row in rows]
    return np.array([now if time is None else time for time, now in zip(known, otherwise, strict=True)])


def _whole(value: Any, name: str) -> int | None:
    number = as_number(value)
    if number is None:
        return None
    if not np.isfinite(number):
        raise ConfigError(f"argument: {name} is {shown(value)}; it must be a whole number.")
    return int(number)
