"""Schemas of responses on series: the catalogue of keys, columns of buckets, live events."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

Axis = Literal["step", "seconds"]
COLUMNS = ("start", "count", "min", "max", "mean", "last", "nonfinite", "time")
"""The columns of a series, in the order they are sent."""


class Place(BaseModel):
    """Where a series comes from."""

    rank: int | None
    host: str
    device: str
    device_name: str


class KeyRow(BaseModel):
    """A key of a run."""

    key: str
    group: str
    unit: str
    help: str
    axis: Axis
    points: int
    last: float | None
    nonfinite: int
    percent: bool
    no_smoothing: bool
    places: list[Place]


class Catalogue(BaseModel):
    """All keys of a run."""

    keys: list[KeyRow]


class Columns(BaseModel):
    """The columns of one series; null means NaN or infinite."""

    start: list[float | None]
    count: list[float | None]
    min: list[float | None]
    max: list[float | None]
    mean: list[float | None]
    last: list[float | None]
    nonfinite: list[float | None]
    time: list[float | None]


class SeriesPart(BaseModel):
    """One series, or a part of it: a key of one place and one segment."""

    key: str
    rank: int | None
    host: str
    device: str
    segment: str = Field(description="Empty where several are merged.")
    superseded: bool = Field(description="Whether a later segment has repeated these steps.")
    width: float = Field(
        description="Width of a bucket in steps (or seconds): a power of two; seconds may be fractions."
    )
    length: int = Field(description="Number of buckets.")
    points: int = Field(description="Number of points of the whole series.")
    exact: bool = Field(description="Whether each bucket is one point.")
    data: Columns | None = Field(None, description="Only with format=json.")


class SeriesHeader(BaseModel):
    """The header before the columns; with format=json it contains them."""

    run: str
    axis: Axis
    columns: list[str] = Field(description="start, count, min, max, mean, last, nonfinite, time.")
    series: list[SeriesPart]
    cursor: str = Field(description="Where a stream continues after this response.")
    missing: list[str] = Field(description="Keys the run does not have.")


class LiveEvent(BaseModel):
    """An event of the stream."""

    event: Literal["hello", "run", "points", "alert", "finding", "mark", "runs", "resync"]
    data: dict[str, Any]


class Delta(BaseModel):
    """Events since a cursor, for clients that cannot hold a stream."""

    cursor: str
    events: list[LiveEvent]
