"""Measures how fast a data loader returns batches, and what limits it."""

from __future__ import annotations

import copy
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stepscope.errors import StepscopeError
from stepscope.profiling.loader.batch_timing import BatchTimer, BatchWaits, Limits
from stepscope.profiling.model.held_memory import TreeMemory, held_bytes
from stepscope.profiling.model.timings import timings_of
from stepscope.profiling.plain_data import Described
from stepscope.profiling.preserved_state import preserved_random_state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from stepscope.profiling.model.timings import Clock, Timings

CEILING_SECONDS = 5.0
ITEMS = 64
CEILING_METHOD = "the same workers, batch size and collation over {count} of its samples kept in memory"
MAX_SECONDS = 5.0
TRANSFORM_ATTRIBUTES = ("transform", "transforms", "target_transform")
MAX_NESTED = 8
TRANSFORM_METHOD = (
    "samples loaded one by one in this process, with the transforms of a copy of the dataset timed"
)


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


def loader_throughput(
    loader: Iterable[Any],
    limits: Limits | None = None,
    *,
    consumer_samples_per_second: float | None = None,
    clock: Clock = time.perf_counter,
    memory: Callable[[], int | None] | None = None,
) -> LoaderProfile:
    """Takes batches from a DataLoader, or any iterable, without using them, and measures the throughput.

    The random state is restored. Efficiency is relative to `consumer_samples_per_second`, such as that of a
    training that never waits for data; without it, to the same loader with its data in memory.
    """
    limits = limits or Limits()
    taken = BatchTimer(limits, clock, memory or TreeMemory().read).take(loader)
    if consumer_samples_per_second is None:
        ceiling = _measured_ceiling(loader, limits, clock, taken)
    else:
        ceiling = Ceiling(consumer_samples_per_second, "the consumer's samples per second, as passed")
    best = ceiling.samples_per_second
    dataset = getattr(loader, "dataset", None)
    return LoaderProfile(
        batches=taken.batches,
        samples=taken.samples,
        seconds=taken.seconds,
        first_batch_seconds=taken.first_batch_seconds,
        samples_per_second=taken.samples_per_second,
        batches_per_second=taken.batches / taken.seconds if taken.seconds else 0.0,
        batch_load=timings_of(taken.waits),
        transforms=_transforms(dataset, limits.items, clock),
        memory=_memory(dataset, taken.peak_bytes),
        ceiling=ceiling,
        efficiency_ratio=taken.samples_per_second / best if best else None,
        workers=getattr(loader, "num_workers", None),
        ended_by=taken.ended_by,
        method=f"{taken.batches} batches taken one after another by a loop that does nothing else",
    )


def _measured_ceiling(loader: Any, limits: Limits, clock: Clock, taken: BatchWaits) -> Ceiling:
    try:
        with preserved_random_state():
            in_memory, method = in_memory_loader(loader, taken.samples * 2, clock)
    except NoReference as error:
        return Ceiling(None, str(error))
    shorter = Limits(limits.batches, min(limits.seconds, CEILING_SECONDS))
    return Ceiling(BatchTimer(shorter, clock).take(in_memory).samples_per_second, method)


def _transforms(dataset: Any, items: int, clock: Clock) -> TransformTime:
    with preserved_random_state():
        return transform_time(dataset, items, clock)


def _memory(dataset: Any, peak_bytes: int | None) -> LoaderMemory:
    if dataset is None:
        return LoaderMemory(None, None, peak_bytes)
    in_dataset, in_cache = held_bytes(dataset)
    return LoaderMemory(in_dataset, in_cache, peak_bytes)


class NoReference(StepscopeError):
    """A loader that cannot be rebuilt with its data in memory."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"none, because {reason}; pass consumer_samples_per_second")


def in_memory_loader(loader: Any, samples: int, clock: Clock) -> tuple[Any, str]:
    """The same loader over samples in memory, and its description; raises NoReference."""
    torch = sys.modules.get("torch")  # a caller with a DataLoader has loaded it
    if torch is None or not isinstance(loader, torch.utils.data.DataLoader):
        raise NoReference("it is not a torch DataLoader")
    data = torch.utils.data
    if isinstance(loader.dataset, data.IterableDataset):
        raise NoReference("its dataset is a stream")
    if loader.batch_size is None:
        raise NoReference("the loader does not collate its batches")
    try:
        kept = [item for item, _ in timed_samples(loader.dataset, ITEMS, clock)]
    except NotIndexable as error:
        raise NoReference(str(error)) from error
    in_memory = data.DataLoader(
        InMemoryDataset(kept, samples),
        batch_size=loader.batch_size,
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        prefetch_factor=loader.prefetch_factor,
        multiprocessing_context=loader.multiprocessing_context,
    )
    return in_memory, CEILING_METHOD.format(count=len(kept))


class InMemoryDataset:
    """A dataset with a few samples in memory, which it returns repeatedly."""

    def __init__(self, samples: list[Any], length: int) -> None:
        self._samples, self._length = samples, length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        return self._samples[index % len(self._samples)]


class NotIndexable(StepscopeError):
    """A dataset whose samples cannot be loaded by index."""

    def __init__(self) -> None:
        super().__init__("samples cannot be loaded by index")


def timed_samples(dataset: Any, max_samples: int, clock: Clock) -> Iterator[tuple[Any, float]]:
    """Yields the first samples and the seconds each took, at least one; ends after five seconds."""
    try:
        count = min(max_samples, len(dataset))
        began_at = clock()
        for index in range(count):
            before = clock()
            item = dataset[index]
            after = clock()
            yield item, after - before
            if after - began_at > MAX_SECONDS:
                return
    except (LookupError, NotImplementedError, TypeError) as error:
        raise NotIndexable from error


def transform_time(dataset: Any, items: int, clock: Clock) -> TransformTime:
    """Times loading samples, and the transforms within that time."""
    stopwatch = _Stopwatch(clock)
    sample_seconds: list[float] = []
    transform_seconds: list[float] = []
    try:
        watched = _with_timed_transforms(dataset, stopwatch)
    except (TypeError, copy.Error) as error:
        return TransformTime(None, None, f"not measured: the dataset cannot be copied ({error})")
    try:
        for _, seconds in timed_samples(watched, items, clock):
            sample_seconds.append(seconds)
            transform_seconds.append(stopwatch.seconds)
            stopwatch.seconds = 0.0
    except NotIndexable as error:
        return TransformTime(None, None, f"not measured: {error}")
    if not sample_seconds:
        return TransformTime(None, None, "not measured: there is no sample")
    if not stopwatch.is_used:
        return TransformTime(None, timings_of(sample_seconds), f"{TRANSFORM_METHOD}; no transform was called")
    return TransformTime(timings_of(transform_seconds), timings_of(sample_seconds), TRANSFORM_METHOD)


class _Stopwatch:
    """Adds up the time in transforms; nested ones count once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.seconds = 0.0
        self.is_used = self._is_running = False

    def run(self, transform: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Calls a transform and times it."""
        if self._is_running:
            return transform(*arguments, **named)
        self.is_used = self._is_running = True
        before = self._clock()
        try:
            return transform(*arguments, **named)
        finally:
            self.seconds += self._clock() - before
            self._is_running = False


class _Timed:
    """A transform that is timed; all other attributes are those of the original."""

    def __init__(self, transform: Any, stopwatch: _Stopwatch) -> None:
        self._transform, self._stopwatch = transform, stopwatch

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._stopwatch.run(self._transform, arguments, named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transform, name)


def _with_timed_transforms(dataset: Any, stopwatch: _Stopwatch, depth: int = 0) -> Any:
    """A copy of a dataset, and of the one it wraps, with timed transforms; the original is not changed."""
    watched = copy.copy(dataset)
    attributes = getattr(watched, "__dict__", {})
    for name in TRANSFORM_ATTRIBUTES:
        if callable(attributes.get(name)):
            attributes[name] = _Timed(attributes[name], stopwatch)
    if "dataset" in attributes and depth < MAX_NESTED:
        attributes["dataset"] = _with_timed_transforms(attributes["dataset"], stopwatch, depth + 1)
    return watched
