"""What the throughput of a loader tells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepscope.profiling.plain import Described

if TYPE_CHECKING:
    from stepscope.profiling.model.timings import Timings


@dataclass(frozen=True)
class Ceiling(Described):
    """The pace a loader is compared with."""

    samples_per_second: float | None
    method: str
    """What it is, or why there is none."""


@dataclass(frozen=True)
class TransformTime(Described):
    """What a dataset's transforms take of loading a sample."""

    transform: Timings | None
    """All transforms of a sample; None where there are none."""
    item: Timings | None
    """The whole sample, transforms included; None where samples cannot be asked for by number."""
    method: str


@dataclass(frozen=True)
class LoaderMemory(Described):
    """Memory around a loader."""

    dataset_bytes: int | None
    """Arrays, tensors and bytes in the dataset's attributes; None where there is no dataset to look at."""
    cache_bytes: int | None
    """The same, of attributes that are called a cache."""
    peak_bytes: int | None
    """The most that this process and its workers took; pages they share are counted for each."""


@dataclass(frozen=True)
class LoaderProfile(Described):
    """How fast a loader gives batches to someone who does nothing but take them."""

    batches: int
    samples: int
    seconds: float
    """From the first batch to the last."""
    first_batch_seconds: float
    """Workers are started and queues filled in this time; it is not part of the others."""
    samples_per_second: float
    batches_per_second: float
    batch_load: Timings
    """The wait for a batch."""
    transforms: TransformTime
    memory: LoaderMemory
    ceiling: Ceiling
    efficiency_ratio: float | None
    """Samples each second against the ceiling's; None where there is no ceiling."""
    workers: int | None
    ended_by: str
    """What ended the measurement: the batches allowed, the seconds allowed, or the data."""
    method: str
