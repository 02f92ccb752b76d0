"""The result of measuring the throughput of a data loader."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepscope.profiling.plain_data import Described

if TYPE_CHECKING:
    from stepscope.profiling.model.timings import Timings


@dataclass(frozen=True)
class Ceiling(Described):
    """The maximum throughput that a loader is compared with."""

    samples_per_second: float | None
    method: str
    """How it was measured, or why there is none."""


@dataclass(frozen=True)
class TransformTime(Described):
    """The time of a dataset's transforms within the time to load a sample."""

    transform: Timings | None
    """All transforms of a sample; None if there are none."""
    item: Timings | None
    """The whole sample including transforms; None if samples cannot be loaded by index."""
    method: str


@dataclass(frozen=True)
class LoaderMemory(Described):
    """Memory of a dataset and its loader."""

    dataset_bytes: int | None
    """Arrays, tensors and bytes in the dataset's attributes; None if there is no dataset."""
    cache_bytes: int | None
    """The same, for attributes with `cache` in their name."""
    peak_bytes: int | None
    """The peak of this process and its workers; shared pages are counted for each."""


@dataclass(frozen=True)
class LoaderProfile(Described):
    """How fast a loader returns batches to a loop that does nothing else."""

    batches: int
    samples: int
    seconds: float
    """From the first batch to the last."""
    first_batch_seconds: float
    """Includes starting workers and filling queues; not part of the other times."""
    samples_per_second: float
    batches_per_second: float
    batch_load: Timings
    """The wait for a batch."""
    transforms: TransformTime
    memory: LoaderMemory
    ceiling: Ceiling
    efficiency_ratio: float | None
    """Samples per second relative to the ceiling; None if there is no ceiling."""
    workers: int | None
    ended_by: str
    """What ended the measurement: `batches`, `seconds` or `data`."""
    method: str
