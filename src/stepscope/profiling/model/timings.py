"""Times a function repeatedly, and summarises the times."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from stepscope.errors import ConfigError
from stepscope.profiling.plain_data import Described

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Clock = Callable[[], float]

MIN_RUNS = 3
"""Minimum number of runs, even after the time limit."""


@dataclass(frozen=True)
class Timings(Described):
    """Statistics of repeated timings."""

    count: int
    mean_seconds: float
    p50_seconds: float
    p95_seconds: float
    p99_seconds: float
    min_seconds: float
    max_seconds: float
    variation_ratio: float
    """Standard deviation divided by the mean."""


@dataclass(frozen=True)
class Repeats:
    """How often a function is timed."""

    count: int = 50
    warm_up: int = 5
    """Runs before the timed ones, which warm up caches, compilers and clocks."""
    most_seconds: float = 10.0
    """Time limit of the measurement, and separately of the warm-up."""

    def __post_init__(self) -> None:
        for name, value, minimum in (("count", self.count, 1), ("warm_up", self.warm_up, 0)):
            if value < minimum:
                raise ConfigError(f"{name} is {value}; it must be at least {minimum}.")
        if self.most_seconds <= 0:
            raise ConfigError(f"most_seconds is {self.most_seconds}; it must be more than 0.")


def timings_of(seconds: Sequence[float]) -> Timings:
    """Summarises at least one measurement; percentiles are interpolated."""
    values = np.asarray(seconds, dtype=np.float64)
    p50, p95, p99 = (float(value) for value in np.quantile(values, [0.5, 0.95, 0.99]))
    mean = float(values.mean())
    return Timings(
        count=len(values),
        mean_seconds=mean,
        p50_seconds=p50,
        p95_seconds=p95,
        p99_seconds=p99,
        min_seconds=float(values.min()),
        max_seconds=float(values.max()),
        variation_ratio=float(values.std()) / mean if mean else 0.0,
    )


def device_clock(torch: Any, device: Any, clock: Clock = time.perf_counter) -> Clock:
    """A clock that waits for the device before it is read; the CPU needs no waiting."""
    if device.type == "cpu":
        return clock
    wait = getattr(torch, device.type).synchronize
    arguments = () if device.type == "mps" else (device,)

    def read() -> float:
        wait(*arguments)
        return clock()

    return read


def repeated(run: Callable[[], object], repeats: Repeats, clock: Clock) -> list[float]:
    """Seconds of each run after the warm-up."""
    began_at = clock()
    for _ in range(repeats.warm_up):
        run()
        if clock() - began_at > repeats.most_seconds:
            break
    taken: list[float] = []
    began_at = clock()
    while len(taken) < repeats.count:
        before = clock()
        run()
        after = clock()
        taken.append(after - before)
        if after - began_at > repeats.most_seconds and len(taken) >= MIN_RUNS:
            break
    return taken
