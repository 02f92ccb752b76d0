"""Writes steps down some at a time: doing it after each one would cost the training several times as much."""

from __future__ import annotations

from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from stepscope.journal.packing import unpacked_rows
from stepscope.schema.keys import (
    CHECKPOINT_GAP_SECONDS,
    EPOCH_GAP_SECONDS,
    EVAL_GAP_SECONDS,
    OVERHEAD_RATIO,
    SAMPLED_RATIO,
    STARTUP_SECONDS,
    STEP_SECONDS,
    phase_key,
)
from stepscope.steps.phase_timer import CHECKPOINT, DATA, Cut

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stepscope.steps.overhead import Overhead
    from stepscope.steps.step_timer import StepTimer

TOGETHER_NS = 200_000_000
"""Steps that end within this time are written down together.

After a step the caches of a processor hold the training's data, and code costs several times what it does
when it is run again and again. A process that is killed takes the times of its last steps along.
"""

MICRO_STEPS = "micro_steps"
"""Batches that make a step, where there are several."""

SHORTEST_STARTUP_NS = 1_000_000
"""A loop that only logs begins its first step at once."""

_COLUMNS = (STEP_SECONDS, phase_key("data"), MICRO_STEPS)
_DATA, _EVAL, _CHECKPOINT = phase_key("data"), phase_key("eval"), phase_key("checkpoint")


class StepRecorder(Protocol):
    """Takes what is known of steps."""

    overhead: Overhead
    timer: StepTimer
    began_ns: int | None
    """When recording began; None once somebody has told how long it took to the first step."""

    def step_in_hand(self) -> int:
        """The number of the step that is being done."""

    def record_late(self, metrics: Mapping[str, Any], step: int, at_ns: int | None = None) -> None:
        """Records figures of an earlier moment."""

    def record_many(self, keys: tuple[str, ...], rows: bytes) -> None:
        """Records packed rows: each has its moment, its step, and a value for each key."""

    def own_event(self, kind: str, /, **fields: Any) -> None:
        """Marks a moment that stepscope itself has noticed."""


class EndedStep(NamedTuple):
    """A step, or something between steps, that is over."""

    number: int
    cut: Cut
    rate: float = 0.0
    """How likely it was to be timed phase by phase; 0 when it was not."""
    others: dict[str, Any] | None = None
    """What else there is to say of it."""
    gap: Literal["", "evaluation", "epoch", "end"] = ""
    """What it was between two steps: an evaluation, the change to another pass, or what came at the end."""

    def row(self, *, knows_wait: bool) -> dict[str, Any]:
        """What is recorded of it, with the wait for data if that is known in every step."""
        cut = self.cut
        if self.gap:
            return self._row_of_gap()
        if self.rate:
            row: dict[str, Any] = cut.row()
            row[SAMPLED_RATIO] = self.rate
        else:
            row = {STEP_SECONDS: cut.took * 1e-9}
            if knows_wait:
                row[_DATA] = cut.spent[DATA] * 1e-9
            if cut.spent[CHECKPOINT]:
                row[_CHECKPOINT] = cut.spent[CHECKPOINT] * 1e-9
        if self.others:
            row.update(self.others)
        return row

    def _row_of_gap(self) -> dict[str, float]:
        took, saving = self.cut.took, self.cut.spent[CHECKPOINT]
        row: dict[str, float] = {}
        if self.gap == "evaluation":
            row[_EVAL] = row[EVAL_GAP_SECONDS] = (took - saving) * 1e-9
        elif self.gap == "epoch":
            row[EPOCH_GAP_SECONDS] = (took - saving) * 1e-9
        if saving:
            row[_CHECKPOINT] = row[CHECKPOINT_GAP_SECONDS] = saving * 1e-9
        return row


class StepWriter:
    """Holds steps that have ended until it is time to write them down; the timer holds the plain ones."""

    def __init__(self, recorder: StepRecorder) -> None:
        self._record, self._record_many = recorder.record_late, recorder.record_many
        self._overhead, self._timer = recorder.overhead, recorder.timer
        self._recorder = recorder
        self._ended: list[EndedStep] = []
        self.knows_wait = False
        """Whether the wait for data is known in every step."""
        self.after_writing: Callable[[], None] = lambda: None

    def add(self, step: EndedStep) -> None:
        """Takes a step that is not a plain one."""
        self._write_plain()  # in order
        self._ended.append(step)
        if step.cut.ended >= self._timer.due_ns:
            self.write(step.cut.ended)

    def write(self, now_ns: int) -> None:
        """Writes down what there is, and now and then what recording has cost."""
        began_ns = monotonic_ns()
        last = self._ended[-1].number if self._ended else None
        self._write_ended()
        last = self._write_plain(last)
        ratio = None if last is None else self._overhead.report(self._overhead.now_ns())
        if last is not None and ratio is not None:
            self._record({OVERHEAD_RATIO: ratio}, last, now_ns)
        self._timer.due_ns = now_ns + TOGETHER_NS
        self._overhead.spend(monotonic_ns() - began_ns)
        self.after_writing()

    def forget(self) -> None:
        """Drops what it holds: a process that this one was forked from writes it down."""
        self._ended = []
        self._timer.take(len(_COLUMNS) + 2)

    def _write_ended(self) -> None:
        ended, self._ended = self._ended, []
        if ended:
            self._tell_startup(ended[0].number, ended[0].cut.ended - ended[0].cut.took)
        for step in ended:
            self._record(step.row(knows_wait=self.knows_wait), step.number, step.cut.ended)

    def _tell_startup(self, number: int, first_began_ns: int) -> None:
        began_ns, self._recorder.began_ns = self._recorder.began_ns, None
        if began_ns is not None and first_began_ns - began_ns > SHORTEST_STARTUP_NS:
            self._record({STARTUP_SECONDS: (first_began_ns - began_ns) * 1e-9}, number, first_began_ns)

    def _write_plain(self, last: int | None = None) -> int | None:
        """Writes the plain steps that the timer has; gives the number of the last one."""
        keys = _COLUMNS[: 3 if self._timer.most_batches > 1 else 2 if self.knows_wait else 1]
        plain = self._timer.take(len(keys) + 2)
        if not plain:
            return last
        self._write_ended()
        row_bytes = 8 * (len(keys) + 2)
        self._overhead.spend(len(plain) // row_bytes * self._overhead.plain_step_ns)
        if self._recorder.began_ns is not None:
            at_ns, number, took, *_ = unpacked_rows(plain[:row_bytes], len(keys))[0]
            self._tell_startup(number, at_ns - round(took * 1e9))
        self._record_many(keys, plain)
        return int.from_bytes(plain[8 - row_bytes :][:8], "little")
