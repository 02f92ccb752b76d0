"""Times named parts of a step, and the wait for each batch."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from stepscope.schema.keys import STEP_SECONDS, phase_key
from stepscope.steps.chain import DATA, OTHER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

    from stepscope.steps.anatomy import Anatomy

Batch_co = TypeVar("Batch_co", covariant=True)


class Phase:
    """Times the block it is entered for; may be entered again."""

    def __init__(self, name: str, record: Callable[[dict[str, float]], None]) -> None:
        self._key = phase_key(name)
        self._record = record
        self._began_at = 0.0

    def __enter__(self) -> Phase:
        self._began_at = perf_counter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._record({self._key: perf_counter() - self._began_at})


class StepClock(Protocol):
    """What counts steps and epochs and takes the times."""

    def begin_epoch(self) -> None:
        """A new pass over the data begins."""

    def next_step(self) -> None:
        """The step in hand is over."""

    def record_now(self, metrics: dict[str, float]) -> None:
        """Records values of the step in hand."""


class Batches(Generic[Batch_co]):
    """A data loader whose batches are steps; each pass over it is an epoch."""

    def __init__(self, loader: Iterable[Batch_co], clock: StepClock, anatomy: Anatomy | None = None) -> None:
        self._loader = loader
        self._clock = clock
        self._anatomy = anatomy

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]  # as the loader does, this raises if it must

    def __getattr__(self, name: str) -> Any:
        """What else a loader is asked for by those who are handed this one: its dataset, `set_epoch`."""
        if name == "_loader":  # before there is one, as when it is copied
            raise AttributeError(name)
        return getattr(self._loader, name)

    def __iter__(self) -> Iterator[Batch_co]:
        return self._timed() if self._anatomy is None else self._taken_apart(self._anatomy)

    def _taken_apart(self, anatomy: Anatomy) -> Iterator[Batch_co]:
        """Batches whose steps are timed phase by phase; several may make one step."""
        self._clock.begin_epoch()
        source = iter(self._loader)
        anatomy.begin_pass(source)
        enter, end_batch, next_step = anatomy.chain.enter, anatomy.end_batch, self._clock.next_step
        in_hand = anatomy.witness.batch
        try:
            enter(DATA)
            for batch in source:
                in_hand.held = batch
                enter(OTHER)
                yield batch
                if end_batch():
                    next_step()
                in_hand.held = None
                enter(DATA)
        except GeneratorExit:
            # Left by `break`, or by a loop that counts its batches and never asks for one after the last.
            if anatomy.has_made_a_step() and end_batch():
                next_step()
            raise
        finally:
            anatomy.end_pass()

    def _timed(self) -> Iterator[Batch_co]:
        clock, data_key = self._clock, phase_key("data")
        clock.begin_epoch()
        source = iter(self._loader)
        asked_at = perf_counter()
        for batch in source:
            waited_s = perf_counter() - asked_at
            yield batch
            began_at, asked_at = asked_at, perf_counter()
            clock.record_now({data_key: waited_s, STEP_SECONDS: asked_at - began_at})
            clock.next_step()
