"""Times named phases of a step, and the wait for each batch, when no model is watched."""

from __future__ import annotations

from time import monotonic_ns, perf_counter
from typing import TYPE_CHECKING, TypeVar

from stepscope.schema.keys import PHASES, phase_key
from stepscope.steps.phase_timer import StepTimes
from stepscope.steps.step_writer import EndedStep, StepWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from stepscope.steps.step_writer import StepRecorder

Batch = TypeVar("Batch")


class Phase:
    """A context manager that times its block; reusable."""

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
    """Times steps that end with their batch or their log call, when no model is watched."""

    def __init__(self, recorder: StepRecorder) -> None:
        self._timer = recorder.timer
        self._writer = StepWriter(recorder)
        self._passes = 0
        self.begin()

    def begin(self) -> None:
        """Starts timing steps that end with their log call, until `batches` is used."""
        timer = self._timer
        timer.began_ns, timer.due_ns, timer.on_due = monotonic_ns(), 0, self.write
        self._is_first_pass = True

    def batches(self, source: Iterator[Batch]) -> Iterator[Batch]:
        """Yields the batches of a pass; each is a step."""
        self.write()
        self._passes += 1
        self._writer.knows_wait = True
        timer = self._timer
        timer.in_batches = timer.every_batch = True
        now_ns = monotonic_ns()
        if not self._is_first_pass and self._passes == 1:
            between = StepTimes(now_ns, now_ns - timer.began_ns, [0] * len(PHASES))
            self._writer.add(EndedStep(timer.step, between, gap="epoch"))
        self._is_first_pass = False
        timer.began_ns, timer.waited_ns, timer.due_ns = now_ns, 0, 0
        return timer.batches_of(source, self._finish_pass)

    def write(self) -> None:
        """Writes the steps that have ended."""
        self._writer.write(monotonic_ns())

    def forget(self) -> None:
        """Discards unwritten steps in a forked process: the parent writes them."""
        self._writer.forget()

    def _finish_pass(self, is_left: bool) -> None:  # noqa: FBT001 - the timer calls it so
        del is_left
        self._passes -= 1
        if not self._passes:
            self._timer.in_batches = self._timer.every_batch = False
        self._timer.held = None
        self.write()
