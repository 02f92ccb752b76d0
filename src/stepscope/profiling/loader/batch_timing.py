"""Takes batches from a data loader and measures the wait for each."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stepscope.errors import ConfigError, StepscopeError
from stepscope.profiling.preserved_state import preserved_random_state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from stepscope.profiling.model.timings import Clock

MEMORY_INTERVAL_S = 0.2


@dataclass(frozen=True)
class Limits:
    """The limits of a measurement; it ends with the first one reached, after the current batch."""

    batches: int = 200
    """Including the first one, which is not counted."""
    seconds: float = 30.0
    items: int = 32
    """Samples that are loaded one by one, to time transforms."""

    def __post_init__(self) -> None:
        if self.batches < 2:
            raise ConfigError(
                f"batches is {self.batches}; it must be at least 2, as the first is not counted."
            )
        if self.seconds <= 0:
            raise ConfigError(f"seconds is {self.seconds}; it must be more than 0.")


@dataclass(frozen=True)
class BatchWaits:
    """The waits for the batches after the first."""

    first_batch_seconds: float
    waits: tuple[float, ...]
    samples: int
    peak_bytes: int | None
    ended_by: str

    @property
    def batches(self) -> int:
        """The number of batches."""
        return len(self.waits)

    @property
    def seconds(self) -> float:
        """The total wait."""
        return sum(self.waits)

    @property
    def samples_per_second(self) -> float:
        """Samples per second of waiting."""
        return self.samples / self.seconds if self.seconds else 0.0


class BatchTimer:
    """Takes batches without using them, and times the wait for each."""

    def __init__(
        self,
        limits: Limits,
        clock: Clock = time.perf_counter,
        memory: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._limits, self._clock, self._memory = limits, clock, memory
        self._waits: list[float] = []
        self._samples = 0
        self._peak: int | None = None

    def take(self, loader: Iterable[Any]) -> BatchWaits:
        """Takes batches until the data or the limits end; raises StepscopeError if there are none.

        If there is only one batch, the result is based on it.
        """
        expected = getattr(loader, "batch_size", None)
        with _preserved_generators(loader):
            before = self._clock()
            batches = iter(loader)
            try:
                batch = next(batches)
            except StopIteration:
                raise StepscopeError("The loader returned no batch.") from None
            first_s = self._clock() - before
            ended_by = self._take_more(batches, expected)
            self._read_memory()
            del batches  # ends its workers, unless they are persistent
        if not self._waits:
            return BatchWaits(first_s, (first_s,), samples_in(batch, expected), self._peak, ended_by)
        return BatchWaits(first_s, tuple(self._waits), self._samples, self._peak, ended_by)

    def _take_more(self, batches: Iterator[Any], expected: int | None) -> str:
        """Returns what ended the measurement: `batches`, `seconds` or `data`."""
        first_at = now = read_memory_at = self._clock()
        while len(self._waits) + 1 < self._limits.batches:
            if now - first_at >= self._limits.seconds:
                return "seconds"
            before = now
            try:
                batch = next(batches)
            except StopIteration:
                return "data"
            now = self._clock()
            self._waits.append(now - before)
            self._samples += samples_in(batch, expected)
            if now >= read_memory_at:
                self._read_memory()
                read_memory_at = now + MEMORY_INTERVAL_S
                now = self._clock()
        return "batches"

    def _read_memory(self) -> None:
        used = self._memory()
        if used is not None:
            self._peak = max(self._peak or 0, used)


def samples_in(batch: Any, expected: int | None = None) -> int:
    """The number of samples in a batch: the rows of its first tensor or array, else its length."""
    if isinstance(batch, list | tuple) and len(batch) == expected and _rows(batch[0]) != expected:
        return len(batch)  # samples that were not collated
    rows = _rows(batch)
    if rows is not None:
        return rows
    return len(batch) if isinstance(batch, list | tuple) else 1


def _rows(value: Any) -> int | None:
    shape = getattr(value, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else None
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return next((rows for part in parts if (rows := _rows(part)) is not None), None)


@contextlib.contextmanager
def _preserved_generators(loader: Any) -> Iterator[None]:
    """Restores the random state of the libraries, and of the loader's own generators."""
    owners = (loader, getattr(loader, "sampler", None))
    generators = (getattr(owner, "generator", None) for owner in owners)
    states = [
        (generator, generator.get_state())
        for generator in generators
        if generator is not None and hasattr(generator, "get_state")
    ]
    with preserved_random_state():
        try:
            yield
        finally:
            for generator, state in states:
                generator.set_state(state)
