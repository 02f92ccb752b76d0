"""Times named parts of a step, and the wait for each batch."""

from __future__ import annotations

from time import monotonic_ns, perf_counter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from stepscope.schema.keys import phase_key
from stepscope.steps.step_writer import StepWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

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


class BatchTimes:
    """Times of steps that are told by their batches alone, where no model is watched."""

    def __init__(self, recorder: StepRecorder) -> None:
        self._timer = recorder.timer
        self._writer = StepWriter(recorder)
        self._writer.knows_wait = True
        self._passes = 0

    def batches(self, source: Iterator[Batch_co]) -> Iterator[Batch_co]:
        """The batches of a pass; each is a step."""
        self._passes += 1
        timer = self._timer
        timer.in_batches = timer.every_batch = True
        timer.began_ns, timer.waited_ns, timer.due_ns, timer.on_due = monotonic_ns(), 0, 0, self.write
        return timer.batches_of(source, self._finish_pass)

    def write(self) -> None:
        """Writes down what is still held back."""
        self._writer.write(monotonic_ns())

    def forget(self) -> None:
        """Leaves what is held back to the process this one was forked from."""
        self._writer.forget()

    def _finish_pass(self, is_left: bool) -> None:  # noqa: FBT001 - the timer calls it so
        del is_left
        self._passes -= 1
        if not self._passes:
            self._timer.in_batches = self._timer.every_batch = False
        self._timer.held = None
        self.write()


class Batches(Generic[Batch_co]):
    """A data loader whose batches are steps; each pass over it is an epoch."""

    def __init__(
        self, loader: Iterable[Batch_co], time_pass: Callable[[Iterator[Batch_co]], Iterator[Batch_co]]
    ) -> None:
        self._loader, self._time_pass = loader, time_pass

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]  # as the loader does, this raises if it must

    def __getattr__(self, name: str) -> Any:
        """What else a loader is asked for by those who are handed this one: its dataset, `set_epoch`."""
        if name == "_loader":  # before there is one, as when it is copied
            raise AttributeError(name)
        return getattr(self._loader, name)

    def __iter__(self) -> Iterator[Batch_co]:
        return self._time_pass(iter(self._loader))
