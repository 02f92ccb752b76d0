"""Measures how fast a data loader can give batches, and what holds it up."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from stepscope.profiling.loader.batches_taken import Limits, Taken, Taker
from stepscope.profiling.loader.loader_ceiling import NoCeiling, loader_in_memory
from stepscope.profiling.loader.loader_profile import Ceiling, LoaderMemory, LoaderProfile, TransformTime
from stepscope.profiling.loader.transform_time import transform_time
from stepscope.profiling.model.held_memory import TreeMemory, held_bytes
from stepscope.profiling.model.timings import timings_of
from stepscope.profiling.undisturbed import same_random_numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from stepscope.profiling.model.timings import Clock

CEILING_SECONDS = 5.0


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
