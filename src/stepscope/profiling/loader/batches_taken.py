"""Takes batches from a loader and notes how long each was waited for."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stepscope.errors import ConfigError, StepscopeError
from stepscope.profiling.undisturbed import same_random_numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from stepscope.profiling.model.timings import Clock

LOOK_AT_MEMORY_EVERY_S = 0.2


@dataclass(frozen=True)
class Limits:
    """What ends a measurement, whichever comes first; a batch that is being waited for is waited for."""

    batches: int = 200
    """The first one included, which is not counted."""
    seconds: float = 30.0
    items: int = 32
    """Samples that are asked for one by one, to time transforms."""

    def __post_init__(self) -> None:
        if self.batches < 2:
            raise ConfigError(
                f"batches is {self.batches}; it must be at least 2, as the first is not counted."
            )
        if self.seconds <= 0:
            raise ConfigError(f"seconds is {self.seconds}; it must be more than 0.")


@dataclass(frozen=True)
class Taken:
    """Batches that were taken after the first, and how long each was waited for."""

    first_batch_seconds: float
    waits: tuple[float, ...]
    samples: int
    peak_bytes: int | None
    ended_by: str

    @property
    def batches(self) -> int:
        """How many."""
        return len(self.waits)

    @property
    def seconds(self) -> float:
        """How long all of them were waited for."""
        return sum(self.waits)

    @property
    def samples_per_second(self) -> float:
        """Their pace."""
        return self.samples / self.seconds if self.seconds else 0.0


class Taker:
    """Someone who takes batches and does nothing with them."""

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

    def take(self, loader: Iterable[Any]) -> Taken:
        """Takes batches until data or patience ends; raises StepscopeError where there are none.

        Where there is only one batch, that one has to speak for all.
        """
        expected = getattr(loader, "batch_size", None)
        with _undisturbed(loader):
            before = self._clock()
            batches = iter(loader)
            try:
                batch = next(batches)
            except StopIteration:
                raise StepscopeError("The loader gave no batch.") from None
            first_s = self._clock() - before
            ended_by = self._take_more(batches, expected)
            self._look_at_memory()
            del batches  # ends its workers, unless they are persistent
        if not self._waits:
            return Taken(first_s, (first_s,), samples_in(batch, expected), self._peak, ended_by)
        return Taken(first_s, tuple(self._waits), self._samples, self._peak, ended_by)

    def _take_more(self, batches: Iterator[Any], expected: int | None) -> str:
        """Returns what made an end: the batches allowed, the seconds allowed, or the data."""
        first_at = now = look_at = self._clock()
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
            if now >= look_at:
                self._look_at_memory()
                look_at = now + LOOK_AT_MEMORY_EVERY_S
                now = self._clock()
        return "batches"

    def _look_at_memory(self) -> None:
        used = self._memory()
        if used is not None:
            self._peak = max(self._peak or 0, used)


def samples_in(batch: Any, expected: int | None = None) -> int:
    """How many samples a batch holds: the rows of its first tensor or array, else its length."""
    if isinstance(batch, list | tuple) and len(batch) == expected and _rows(batch[0]) != expected:
        return len(batch)  # samples that were not put together
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
def _undisturbed(loader: Any) -> Iterator[None]:
    """Gives random numbers back their state, and the loader's own generators theirs."""
    owners = (loader, getattr(loader, "sampler", None))
    generators = [one for owner in owners if (one := getattr(owner, "generator", None)) is not None]
    states = [(one, one.get_state()) for one in generators if hasattr(one, "get_state")]
    with same_random_numbers():
        try:
            yield
        finally:
            for generator, state in states:
                generator.set_state(state)
