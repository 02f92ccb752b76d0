"""Writes steps in batches: writing after each step would cost the training several times as much."""

from __future__ import annotations

from operator import add
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from stepscope.journal.packing import unpacked_rows
from stepscope.schema.keys import (
    CHECKPOINT_GAP_SECONDS,
    EPOCH_GAP_SECONDS,
    EVAL_GAP_SECONDS,
    OVERHEAD_RATIO,
    PHASES,
    SAMPLED_RATIO,
    STARTUP_SECONDS,
    STEP_SECONDS,
    phase_key,
)
from stepscope.steps.phase_timer import CHECKPOINT, DATA, StepTimes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stepscope.steps.overhead import Overhead
    from stepscope.steps.step_timer import StepTimer

WRITE_INTERVAL_NS = 200_000_000
"""Steps that end within this time are written together.

After a step the CPU caches hold the training's data, and code takes several times as long as in a tight loop.
If the process is killed, the times of its last steps are lost.
"""

MICRO_STEPS = "micro_steps"
"""Number of batches in a step, if more than one."""

WARM_UP_STEPS = 3
"""Steps timed phase by phase that do not count in the sums of phases."""

MIN_STARTUP_NS = 1_000_000
"""A shorter start-up is not recorded: a loop that only logs starts its first step immediately."""

_COLUMNS = (STEP_SECONDS, phase_key("data"), MICRO_STEPS)
_DATA, _EVAL, _CHECKPOINT = phase_key("data"), phase_key("eval"), phase_key("checkpoint")


class StepRecorder(Protocol):
    """Records the measurements of steps."""

    overhead: Overhead
    timer: StepTimer
    began_ns: int | None
    """When recording began; None once the start-up time has been recorded."""

    def current_step(self) -> int:
        """The number of the current step."""

    def record_late(self, metrics: Mapping[str, Any], step: int, at_ns: int | None = None) -> None:
        """Records values of an earlier time."""

    def record_many(self, keys: tuple[str, ...], rows: bytes) -> None:
        """Records packed rows: each has its time, its step, and a value for each key."""

    def own_event(self, kind: str, /, **fields: Any) -> None:
        """Records an event of stepscope's own."""


class EndedStep(NamedTuple):
    """A step that has ended, or an interval between steps."""

    number: int
    times: StepTimes
    rate: float = 0.0
    """Probability that it was timed phase by phase; 0 if it was not."""
    others: dict[str, Any] | None = None
    """Further values of the step."""
    gap: Literal["", "evaluation", "epoch", "end"] = ""
    """The kind of interval between steps: an evaluation, a change of epochs, or the end of the run."""

    def row(self, *, knows_wait: bool) -> dict[str, Any]:
        """The values to record, with the wait for data if that is measured in every step."""
        times = self.times
        if self.gap:
            return self._row_of_gap()
        if self.rate:
            row: dict[str, Any] = times.row()
            row[SAMPLED_RATIO] = self.rate
        else:
            row = {STEP_SECONDS: times.took * 1e-9}
            if knows_wait:
                row[_DATA] = times.spent[DATA] * 1e-9
            if times.spent[CHECKPOINT]:
                row[_CHECKPOINT] = times.spent[CHECKPOINT] * 1e-9
        if self.others:
            row.update(self.others)
        return row

    def _row_of_gap(self) -> dict[str, float]:
        took, saving = self.times.took, self.times.spent[CHECKPOINT]
        row: dict[str, float] = {}
        if self.gap == "evaluation":
            row[_EVAL] = row[EVAL_GAP_SECONDS] = (took - saving) * 1e-9
        elif self.gap == "epoch":
            row[EPOCH_GAP_SECONDS] = (took - saving) * 1e-9
        if saving:
            row[_CHECKPOINT] = row[CHECKPOINT_GAP_SECONDS] = saving * 1e-9
        return row


class StepWriter:
    """Holds ended steps until they are written; the timer holds the plain ones."""

    def __init__(self, recorder: StepRecorder) -> None:
        self._record, self._record_many = recorder.record_late, recorder.record_many
        self._overhead, self._timer = recorder.overhead, recorder.timer
        self._recorder = recorder
        self._ended: list[EndedStep] = []
        self.knows_wait = False
        """Whether the wait for data is measured in every step."""
        self._warm_up_left = WARM_UP_STEPS
        self.timed_steps = 0
        """Number of steps that were timed phase by phase, without the first ones."""
        self.spent_ns = [0] * len(PHASES)
        """Time in each phase of these steps."""
        self.after_writing: Callable[[], None] = lambda: None

    def add(self, step: EndedStep) -> None:
        """Adds a step that is not plain."""
        self._write_plain()  # in order
        self._ended.append(step)
        self._warm_up_left -= step.rate > 0
        if step.rate and self._warm_up_left < 0:
            self.timed_steps += 1
            self.spent_ns = list(map(add, self.spent_ns, step.times.spent))
        if step.times.ended >= self._timer.due_ns:
            self.write(step.times.ended)

    def write(self, now_ns: int) -> None:
        """Writes the ended steps, and at intervals the measured overhead."""
        began_ns = monotonic_ns()
        last = self._ended[-1].number if self._ended else None
        self._write_ended()
        last = self._write_plain(last)
        ratio = None if last is None else self._overhead.report(self._overhead.now_ns())
        if last is not None and ratio is not None:
            self._record({OVERHEAD_RATIO: ratio}, last, now_ns)
        self._timer.due_ns = now_ns + WRITE_INTERVAL_NS
        self._overhead.spend(monotonic_ns() - began_ns)
        self.after_writing()

    def forget(self) -> None:
        """Discards the ended steps in a forked process: the parent writes them."""
        self._ended = []
        self._timer.take(len(_COLUMNS) + 2)

    def _write_ended(self) -> None:
        ended, self._ended = self._ended, []
        if ended:
            self._record_startup(ended[0].number, ended[0].times.ended - ended[0].times.took)
        for step in ended:
            self._record(step.row(knows_wait=self.knows_wait), step.number, step.times.ended)

    def _record_startup(self, number: int, first_began_ns: int) -> None:
        began_ns, self._recorder.began_ns = self._recorder.began_ns, None
        if began_ns is not None and first_began_ns - began_ns > MIN_STARTUP_NS:
            self._record({STARTUP_SECONDS: (first_began_ns - began_ns) * 1e-9}, number, first_began_ns)

    def _write_plain(self, last: int | None = None) -> int | None:
        """Writes the plain steps of the timer; returns the number of the last one."""
        keys = _COLUMNS[: 3 if self._timer.most_batches > 1 else 2 if self.knows_wait else 1]
        plain = self._timer.take(len(keys) + 2)
        if not plain:
            return last
        self._write_ended()
        row_bytes = 8 * (len(keys) + 2)
        self._overhead.spend(len(plain) // row_bytes * self._overhead.plain_step_ns)
        if self._recorder.began_ns is not None:
            at_ns, number, took, *_ = unpacked_rows(plain[:row_bytes], len(keys))[0]
            self._record_startup(number, at_ns - round(took * 1e9))
        self._record_many(keys, plain)
        return int.from_bytes(plain[8 - row_bytes :][:8], "little")
