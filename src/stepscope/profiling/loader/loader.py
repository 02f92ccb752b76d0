"""Measures how fast a data loader can give batches, and what holds it up."""

from __future__ import annotations

import copy
import sys
import time
from typing import TYPE_CHECKING, Any

from stepscope.errors import StepscopeError
from stepscope.profiling.loader.batches_taken import Limits, Taken, Taker
from stepscope.profiling.loader.loader_profile import Ceiling, LoaderMemory, LoaderProfile, TransformTime
from stepscope.profiling.model.held_memory import TreeMemory, held_bytes
from stepscope.profiling.model.timings import timings_of
from stepscope.profiling.undisturbed import same_random_numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from stepscope.profiling.model.timings import Clock

CEILING_SECONDS = 5.0
ITEMS = 64
CEILING_METHOD = "the same workers, batch size and collation over {count} of its samples kept in memory"
MAX_SECONDS = 5.0
TRANSFORM_ATTRIBUTES = ("transform", "transforms", "target_transform")
MAX_NESTED = 8
TRANSFORM_METHOD = (
    "samples asked for one by one in this process, with the transforms of a copy of the dataset timed"
)


def loader_throughput(
    loader: Iterable[Any],
    limits: Limits | None = None,
    *,
    consumer_samples_per_second: float | None = None,
    clock: Clock = time.perf_counter,
    memory: Callable[[], int | None] | None = None,
) -> LoaderProfile:
    """Takes batches from a DataLoader, or anything that can be iterated, and does nothing with them.

    Random numbers are left as they were. With the samples per second of a consumer, such as a training that
    waits for no data, efficiency is measured against that; else against the same loader with data in memory.
    """
    limits = limits or Limits()
    taken = Taker(limits, clock, memory or TreeMemory().read).take(loader)
    if consumer_samples_per_second is None:
        ceiling = _measured_ceiling(loader, limits, clock, taken)
    else:
        ceiling = Ceiling(consumer_samples_per_second, "the consumer's pace, as given")
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
        method=f"{taken.batches} batches taken one after the other by a loop that does nothing else",
    )


def _measured_ceiling(loader: Any, limits: Limits, clock: Clock, taken: Taken) -> Ceiling:
    try:
        with same_random_numbers():
            in_memory, method = loader_in_memory(loader, taken.samples * 2, clock)
    except NoCeiling as error:
        return Ceiling(None, str(error))
    shorter = Limits(limits.batches, min(limits.seconds, CEILING_SECONDS))
    return Ceiling(Taker(shorter, clock).take(in_memory).samples_per_second, method)


def _transforms(dataset: Any, items: int, clock: Clock) -> TransformTime:
    with same_random_numbers():
        return transform_time(dataset, items, clock)


def _memory(dataset: Any, peak_bytes: int | None) -> LoaderMemory:
    if dataset is None:
        return LoaderMemory(None, None, peak_bytes)
    in_dataset, in_cache = held_bytes(dataset)
    return LoaderMemory(in_dataset, in_cache, peak_bytes)


class NoCeiling(StepscopeError):
    """A loader that cannot be built again without its data."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"there is none, as {reason}; give consumer_samples_per_second")


def loader_in_memory(loader: Any, samples: int, clock: Clock) -> tuple[Any, str]:
    """A loader that gives so many samples, and what it is; raises NoCeiling with the reason."""
    torch = sys.modules.get("torch")  # whoever has a DataLoader has loaded it
    if torch is None or not isinstance(loader, torch.utils.data.DataLoader):
        raise NoCeiling("it is no torch DataLoader")
    data = torch.utils.data
    if isinstance(loader.dataset, data.IterableDataset):
        raise NoCeiling("its dataset is a stream")
    if loader.batch_size is None:
        raise NoCeiling("its batches are not put together by the loader")
    try:
        kept = [item for item, _ in timed_items(loader.dataset, ITEMS, clock)]
    except NotByNumber as error:
        raise NoCeiling(str(error)) from error
    in_memory = data.DataLoader(
        Kept(kept, samples),
        batch_size=loader.batch_size,
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        prefetch_factor=loader.prefetch_factor,
        multiprocessing_context=loader.multiprocessing_context,
    )
    return in_memory, CEILING_METHOD.format(count=len(kept))


class Kept:
    """A dataset whose samples are there already; it gives the same few again and again."""

    def __init__(self, samples: list[Any], length: int) -> None:
        self._samples, self._length = samples, length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        return self._samples[index % len(self._samples)]


class NotByNumber(StepscopeError):
    """A dataset whose samples cannot be asked for by number."""

    def __init__(self) -> None:
        super().__init__("samples cannot be asked for by number")


def timed_items(dataset: Any, most: int, clock: Clock) -> Iterator[tuple[Any, float]]:
    """The first samples and the seconds each took; ends after five seconds, but not before one."""
    try:
        count = min(most, len(dataset))
        began_at = clock()
        for index in range(count):
            before = clock()
            item = dataset[index]
            after = clock()
            yield item, after - before
            if after - began_at > MAX_SECONDS:
                return
    except (LookupError, NotImplementedError, TypeError) as error:
        raise NotByNumber from error


def transform_time(dataset: Any, items: int, clock: Clock) -> TransformTime:
    """Times samples, and the transforms inside them."""
    stopwatch = _Stopwatch(clock)
    whole: list[float] = []
    inside: list[float] = []
    try:
        watched = _watched(dataset, stopwatch)
    except (TypeError, copy.Error) as error:
        return TransformTime(None, None, f"not measured: the dataset cannot be copied ({error})")
    try:
        for _, seconds in timed_items(watched, items, clock):
            whole.append(seconds)
            inside.append(stopwatch.seconds)
            stopwatch.seconds = 0.0
    except NotByNumber as error:
        return TransformTime(None, None, f"not measured: {error}")
    if not whole:
        return TransformTime(None, None, "not measured: there is no sample")
    if not stopwatch.is_used:
        return TransformTime(None, timings_of(whole), f"{TRANSFORM_METHOD}; it has none that was called")
    return TransformTime(timings_of(inside), timings_of(whole), TRANSFORM_METHOD)


class _Stopwatch:
    """Adds up the time inside transforms; one inside another counts once."""

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
    """A transform that is timed, and in all else the one it stands for."""

    def __init__(self, transform: Any, stopwatch: _Stopwatch) -> None:
        self._transform, self._stopwatch = transform, stopwatch

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._stopwatch.run(self._transform, arguments, named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transform, name)


def _watched(dataset: Any, stopwatch: _Stopwatch, depth: int = 0) -> Any:
    """A copy of a dataset, and of the one it wraps, whose transforms are timed; the user's is not touched."""
    watched = copy.copy(dataset)
    attributes = getattr(watched, "__dict__", {})
    for name in TRANSFORM_ATTRIBUTES:
        if callable(attributes.get(name)):
            attributes[name] = _Timed(attributes[name], stopwatch)
    if "dataset" in attributes and depth < MAX_NESTED:
        attributes["dataset"] = _watched(attributes["dataset"], stopwatch, depth + 1)
    return watched
