"""Times whole training steps and their waits for data.

This is what runs in every step, whether or not anything else is looked at, so there is as little of it as
can be. `_step_timer.c` does the same and costs a training a fifth of it; where that has been compiled, it is
the `StepTimer`.
"""

from __future__ import annotations

from struct import Struct
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Batch = TypeVar("Batch")

FOREVER = 2**63 - 1
MAX_ROWS = 1024
"""Steps that are kept at most until somebody takes them."""
TAKEOVER = 8
"""After so many steps of others, an optimizer no longer ends steps of the training: another one does."""


class PythonStepTimer:
    """The current step, and those that have ended since they were last taken.

    A step ends when an optimizer has stepped: at once, or where `batches_of` is used when the loop is done
    with the batch. Most steps are plain, of which only the time is noted here. For one that is special, or
    when enough plain ones have passed, somebody is called who ends it instead.
    """

    def __init__(self) -> None:  # noqa: PLR0915 - each field has its sentence
        self.step = 0
        """The number of the current step. Where batches end steps, it is counted here."""
        self.began_ns = monotonic_ns()
        """When the current step began."""
        self.waited_ns = 0
        """How long it has waited for data, where nobody asks for that to be told by `on_got`."""
        self.batches = 0
        """Its batches that the loop is done with."""
        self.is_made = False
        """Whether an optimizer has stepped in it."""
        self.is_over = False
        """Whether an optimizer has ended it already: the next one begins with the next optimizer step, or
        with a call of `log` that comes before it."""
        self.stride = 1
        """By how much a call of `log` moves the number on; 0 as soon as batches or an optimizer do that."""
        self.first_step = 0
        """The number of the step at which an optimizer began to be heard of."""
        self.steps_made = 0
        """How often an optimizer has ended a step."""
        self.in_batches = False
        """Whether a step ends with a batch, and not as soon as an optimizer has stepped."""
        self.every_batch = False
        """Whether every batch ends a step, optimizer or not."""
        self.is_special = False
        """Whether the current step is to be ended by `on_step`."""
        self.left = FOREVER
        """Steps until one is to be ended by `on_step`."""
        self.due_ns = FOREVER
        """When `on_due` is to be called."""
        self.most_batches = 0
        """The most batches of any step that has not been taken yet."""
        self.last_optimizer: Any = None
        """The optimizer whose step ends a step of the training; None while it is not known."""
        self.on_other: Callable[[Any], int] | None = None
        """Judges another optimizer that steps: 0 it ends no steps of the training, 1 it does from now on,
        2 it does once the last optimizer has not stepped for a while."""
        self.held: Any = None
        """The current batch."""
        self.on_step: Callable[[int], Any] | None = None
        """Ends a step that is not plain, at the moment it is given."""
        self.on_due: Callable[[], Any] | None = None
        """Called after a step or batch when it is due."""
        self.on_batch: Callable[[], Any] | None = None
        """Tells whether a batch ends a step although no optimizer has stepped; None: it does not."""
        self.on_optimizer: Callable[[Any], Any] | None = None
        """Called when an optimizer has stepped; calls `make_step` if that ends a step. None: it does."""
        self.on_asked: Callable[[], Any] | None = None
        """Called before a batch is fetched, where there is an `on_got`."""
        self.on_got: Callable[[], Any] | None = None
        """Called after a batch was fetched."""
        self._rows: list[tuple[Any, ...]] = []
        self._last_logged: int | None = None
        """The last step that was ended by the call that logs it."""
        self._others = 0
        """How often another optimizer than the last one has stepped since that one did."""

    def optimizer_stepped(self, optimizer: Any, *_: Any) -> None:
        """The hook for optimizers."""
        if self.on_optimizer is not None:
            self.on_optimizer(optimizer)
        elif self.ends_step(optimizer):
            self.make_step()

    def ends_step(self, optimizer: Any) -> bool:
        """Whether the step of this optimizer ends one of the training."""
        if self.last_optimizer is not optimizer:
            kind = 0 if self.on_other is None else self.on_other(optimizer)
            if kind == 0:
                return False
            self._others += 1
            if kind != 1 and self._others < TAKEOVER:
                return self.in_batches
            self.last_optimizer = optimizer
        self._others = 0
        return True

    def make_step(self) -> None:
        """An optimizer has ended a step, or will have when the loop is done with its batch."""
        self.steps_made += 1
        self.is_made = True
        if self.in_batches:
            return
        if self.stride:
            self.stride = 0  # calls of `log` no longer count steps
            self.step -= self.step > self.first_step
        self.step += self.is_over
        self.is_over = False
        self._end_step(monotonic_ns())
        self.is_over = True  # what is logged from now on belongs to this step until the next one begins

    def end_logged(self) -> None:
        """The call that logs a step is its end, where nothing else is; it has moved the number on already."""
        if self.step - 1 == self._last_logged:
            return
        self.step -= 1
        self._last_logged = self.step
        self._end_step(monotonic_ns())
        self.step += 1

    def end_batch(self) -> None:
        """The loop is done with a batch; `batches_of` tells by itself."""
        ended_ns = monotonic_ns()
        self.batches += 1
        if self.is_made or self.every_batch or (self.on_batch is not None and self.on_batch()):
            self._end_step(ended_ns)
            self.step += 1
        elif ended_ns >= self.due_ns and self.on_due is not None:
            self.on_due()

    def take(self, columns: int) -> bytes:
        """The plain steps that have ended, packed as `Writer.append_rows` takes them, in so many columns.

        These are: when it ended, its number, its seconds, its wait for data, its batches.
        """
        rows, self._rows, self.most_batches = self._rows, [], 0
        pack = Struct(f"<qq{columns - 2}d").pack
        return b"".join(pack(*row[:columns]) for row in rows)

    def batches_of(self, source: Iterator[Batch], finish: Callable[[bool], Any]) -> Iterator[Batch]:
        """Batches of one pass; `finish` is called after the last, with True if the loop left early."""
        try:
            while True:
                on_got, asked_ns = self.on_got, monotonic_ns()
                if on_got is not None and self.on_asked is not None:
                    self.on_asked()
                try:
                    self.held = next(source)
                except StopIteration:
                    break
                finally:
                    if on_got is None:
                        self.waited_ns += monotonic_ns() - asked_ns
                if on_got is not None:
                    on_got()
                yield self.held
                self.end_batch()
                self.held = None
        except GeneratorExit:
            finish(True)  # noqa: FBT003 - it is called from C too, where arguments have no names
            raise
        except BaseException:
            finish(False)  # noqa: FBT003
            raise
        finish(False)  # noqa: FBT003

    def _end_step(self, ended_ns: int) -> None:
        self.left -= 1
        if len(self._rows) == MAX_ROWS and self.on_due is not None:
            self.on_due()
        if len(self._rows) == MAX_ROWS:
            self._rows.clear()  # nobody takes them
        if self.is_special or self.left <= 0:
            if self.on_step is not None:
                self.on_step(ended_ns)
        else:
            took_ns = ended_ns - self.began_ns
            self._rows.append(
                (ended_ns, self.step, took_ns * 1e-9, self.waited_ns * 1e-9, float(self.batches))
            )
            self.most_batches = max(self.most_batches, self.batches)
        self.began_ns = ended_ns
        self.waited_ns = self.batches = 0
        self.is_made = False
        if ended_ns >= self.due_ns and self.on_due is not None:
            self.on_due()


if TYPE_CHECKING:
    StepTimer = PythonStepTimer
    is_compiled = True
else:
    try:
        from stepscope.steps import _step_timer

        StepTimer, is_compiled = _step_timer.StepTimer, True
    except ImportError:
        StepTimer, is_compiled = PythonStepTimer, False
