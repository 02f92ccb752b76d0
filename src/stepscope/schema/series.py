"""Series: their labels, and the forms in which they are read."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

Axis = Literal["step", "seconds"]


@dataclass(frozen=True)
class Source:
    """Where values come from: the labels of a series, never part of its name."""

    run_id: str
    segment: str
    rank: int | None
    """None for series of the host, which belong to all ranks on it."""
    host: str
    device: str = ""
    """A GPU or a loader worker; empty for the rank, or the host, itself."""
    axis: Axis = "step"
    """The axis of rollups: steps for training, seconds for samplers."""


@dataclass(frozen=True)
class Selection:
    """Selects series; None matches any."""

    run_id: str
    key: str
    segment: str | None = None
    rank: int | None = None
    host: str | None = None
    device: str | None = None
    axis: Axis | None = None


@dataclass(frozen=True)
class SeriesInfo:
    """A key of a run and how many points it has."""

    key: str
    points: int
    ranks: tuple[int, ...]
    last: float | None
    """The newest value; None when it is not a number."""
    last_step: int | None
    """The step it was logged for."""


@dataclass(frozen=True)
class Points:
    """Every point of a series, exactly as logged."""

    steps: NDArray[np.int64]
    values: NDArray[np.float64]
    unpack_times: Callable[[], NDArray[np.int64]]
    """Unpacking times takes as long as the rest, and most readers never use them."""

    @functools.cached_property
    def times_ns(self) -> NDArray[np.int64]:
        """Nanoseconds since the epoch."""
        return self.unpack_times()

    @functools.cached_property
    def times(self) -> NDArray[np.float64]:
        """Seconds since the epoch."""
        seconds: NDArray[np.float64] = self.times_ns / 1e9
        return seconds

    def __len__(self) -> int:
        return len(self.steps)


@dataclass(frozen=True)
class Buckets:
    """A series in buckets whose edges are multiples of a power of two.

    No extreme is lost: a bucket has its minimum and maximum finite value, and the number of non-finite ones.
    """

    width: int
    starts: NDArray[np.int64]
    """The first step (or second) of each bucket: a multiple of `width`."""
    count: NDArray[np.int64]
    minimum: NDArray[np.float64]
    maximum: NDArray[np.float64]
    mean: NDArray[np.float64]
    last: NDArray[np.float64]
    nonfinite: NDArray[np.int64]
    times: NDArray[np.float64]
    """When the last point of each bucket was logged."""
    ticks: int = 1
    """Units of `width` and `starts` in one step or second."""

    def __len__(self) -> int:
        return len(self.starts)
