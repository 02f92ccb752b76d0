"""The header of a response with series: it describes the columns that follow it, or contains them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stepscope.schema.series import Axis  # noqa: TC001 - the schema of the API reads it

ColumnName = Literal["start", "count", "min", "max", "mean", "last", "nonfinite", "time"]
COLUMNS: tuple[ColumnName, ...] = ("start", "count", "min", "max", "mean", "last", "nonfinite", "time")
"""The columns of a series, in the order they are sent."""

Column = tuple[float | None, ...]


@dataclass(frozen=True)
class Columns:
    """The columns of one series; null means NaN or infinite."""

    start: Column
    count: Column
    min: Column
    max: Column
    mean: Column
    last: Column
    nonfinite: Column
    time: Column


@dataclass(frozen=True)
class SeriesPart:
    """One series, or a part of it: a key of one place and one segment."""

    key: str
    rank: int | None
    host: str
    device: str
    segment: str
    """Empty where several are merged."""
    superseded: bool
    """Whether a later segment has repeated these steps."""
    width: float
    """Width of a bucket in steps (or seconds): a power of two; seconds may be fractions."""
    length: int
    """Number of buckets."""
    points: int
    """Number of points of the whole series."""
    exact: bool
    """Whether each bucket is one point."""
    data: Columns | None
    """Only with format=json."""


@dataclass(frozen=True)
class SeriesHeader:
    """The header before the columns; with format=json it contains them."""

    run: str
    axis: Axis
    columns: tuple[ColumnName, ...]
    """The order in which the columns of each series are sent."""
    series: tuple[SeriesPart, ...]
    cursor: str
    """Where a stream continues after this response."""
    missing: tuple[str, ...]
    """Keys the run does not have."""
