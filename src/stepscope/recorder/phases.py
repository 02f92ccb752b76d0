"""Times named parts of a step, and the wait for each batch."""

from __future__ import annotations

from time import monotonic_ns, perf_counter
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from stepscope.schema.keys import phase_key
from stepscope.steps.chain import DATA, OTHER, Chain
from stepscope.steps.phase_sampling import PLAIN_CALLS
from stepscope.steps.step_writer import StepWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

    from stepscope.steps.anatomy import Anatomy
    from stepscope.steps.step_writer import StepRecorder

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

    def step_in_hand(self) -> int:
        """The number of the step that is being done."""


class BatchTimes:
    """Times of steps that are told by their batches alone, where no model is watched."""

    def __init__(self, recorder: StepRecorder) -> None:
        self.chain = Chain()
        self._overhead = recorder.overhead
        self._writer = StepWriter(recorder)
        self._writer.knows_wait = True

    def end_step(self, number: int) -> None:
        """A step is over."""
        now_ns, chain = monotonic_ns(), self.chain
        self._overhead.spend(PLAIN_CALLS * self._overhead.call_ns)
        self._writer.add_plain(now_ns, number, now_ns - chain.began_ns, chain.waited_ns)
        chain.cut_whole(now_ns)

    def write(self) -> None:
        """Writes down what is still held back."""
        self._writer.write(monotonic_ns())

    def forget(self) -> None:
        """Leaves what is held back to the process this one was forked from."""
        self._writer.forget()


class Batches(Generic[Batch_co]):
    """A data loader whose batches are steps; each pass over it is an epoch."""

    def __init__(
        self, loader: Iterable[Batch_co], clock: StepClock, times: BatchTimes, anatomy: Anatomy | None = None
    ) -> None:
        self._loader = loader
        self._clock, self._times = clock, times
        self._anatomy = anatomy

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]  # as the loader does, this raises if it must

    def __getattr__(self, name: str) -> Any:
        """What else a loader is asked for by those who are handed this one: its dataset, `set_epoch`."""
        if name == "_loader":  # before there is one, as when it is copied
            raise AttributeError(name)
        return getattr(self._loader, name)

    def __iter__(self) -> Iterator[Batch_co]:
        return self._timed(self._times) if self._anatomy is None else self._taken_apart(self._anatomy)

    def _taken_apart(self, anatomy: Anatomy) -> Iterator[Batch_co]:
        """Batches whose steps may be timed phase by phase; several may make one step."""
        self._clock.begin_epoch()
        source = iter(self._loader)
        anatomy.begin_pass(source)
        chain, in_hand = anatomy.chain, anatomy.witness.batch
        end_batch, next_step = anatomy.end_batch, self._clock.next_step
        nothing: Any = object()
        try:
            while True:
                if anatomy.is_timed:
                    chain.enter(DATA)
                    batch = next(source, nothing)
                    chain.enter(OTHER)
                else:
                    asked_ns = monotonic_ns()
                    batch = next(source, nothing)
                    chain.waited_ns += monotonic_ns() - asked_ns
                if batch is nothing:
                    return
                in_hand.held = batch
                yield batch
                if end_batch():
                    next_step()
                in_hand.held = None
        except GeneratorExit:
            # Left by `break`, or by a loop that counts its batches and never asks for one after the last.
            if anatomy.has_made_a_step() and end_batch():
                next_step()
            raise
        finally:
            anatomy.end_pass()

    def _timed(self, times: BatchTimes) -> Iterator[Batch_co]:
        clock, chain = self._clock, times.chain
        clock.begin_epoch()
        source = iter(self._loader)
        nothing: Any = object()
        chain.restart()
        try:
            while True:
                asked_ns = monotonic_ns()
                batch = next(source, nothing)
                chain.waited_ns += monotonic_ns() - asked_ns
                if batch is nothing:
                    return
                yield batch
                times.end_step(clock.step_in_hand())
                clock.next_step()
        finally:
            times.write()
