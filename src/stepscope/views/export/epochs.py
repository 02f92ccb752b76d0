"""Splits rows by epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stepscope.exporters.base import Rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

KEY = "epoch"


def by_epoch(batches: Iterable[Rows], *, keep_key: bool) -> Iterator[tuple[int | None, Rows]]:
    """Yields rows with their epoch; a row without one has that of the previous row, or None.

    A fractional epoch is rounded down. Each rank and segment starts without an epoch.
    """
    previous: tuple[object, object] | None = None
    carried = np.nan
    for rows in batches:
        if not len(rows):
            continue
        rank_segment = (rows.labels["segment"][0], rows.labels["rank"][0])
        if rank_segment != previous:
            previous, carried = rank_segment, np.nan
        epochs = _filled(rows, carried)
        carried = epochs[-1]
        shown = rows if keep_key else _without_key(rows)
        for epoch in np.unique(epochs):
            inside = np.isnan(epochs) if np.isnan(epoch) else epochs == epoch
            yield (None if np.isnan(epoch) else int(epoch)), _picked(shown, inside)


def _filled(rows: Rows, carried: float) -> NDArray[np.float64]:
    """Returns the epoch of each row, NaN before the first."""
    if KEY not in rows.keys:
        return np.full(len(rows), np.nan)
    column = rows.keys.index(KEY)
    values = rows.values[:, column]
    is_known = rows.present[:, column] & np.isfinite(values)
    latest = np.maximum.accumulate(np.where(is_known, np.arange(len(rows)), -1))
    return np.where(latest >= 0, np.floor(values[latest]), carried)


def _picked(rows: Rows, inside: NDArray[np.bool_]) -> Rows:
    labels = {name: column[inside] for name, column in rows.labels.items()}
    return Rows(labels, rows.keys, rows.values[inside], rows.present[inside])


def _without_key(rows: Rows) -> Rows:
    columns = [column for column, key in enumerate(rows.keys) if key != KEY]
    keys = tuple(rows.keys[column] for column in columns)
    return Rows(rows.labels, keys, rows.values[:, columns], rows.present[:, columns])
