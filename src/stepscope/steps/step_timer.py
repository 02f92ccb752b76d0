"""Times whole training steps and their waits for data.

This code runs in every step, so it is as short as possible. `_step_timer.c` does the same at a fifth of the
cost, and is the `StepTimer` wherever it has been compiled.
"""

from __future__ import annotations

import weakref
from struct import Struct
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Batch = TypeVar("Batch")

FOREVER = 2**63 - 1
MAX_ROWS = 1024
"""Maximum number of ended steps to keep until `take` is called."""
TAKEOVER = 8
"""After this many steps of other optimizers, another optimizer ends the training's steps."""


def _nothing() -> None: ...


class PythonStepTimer:
    """The current step, and the steps that have ended since the last `take`.

    A step ends when an optimizer has stepped: immediately, or, if `batches_of` is used, when the loop is done
    with the batch. Most steps are plain: only their times are kept here. A special step, and a step after a
    set number of plain ones, is ended by the callback `on_step`.
    """

    def __init__(self) -> None:  # noqa: PLR0915 - each field has its sentence
        self.step = 0
        """The number of the current step; counted here if batches end steps."""
        self.began_ns = monotonic_ns()
        """When the current step began."""
        self.waited_ns = 0
        """How long it has waited for data, if there is no `on_got`."""
        self.batches = 0
        """Number of its batches that the loop is done with."""
        self.is_made = False
        """Whether an optimizer has stepped in it."""
        self.is_over = False
        """Whether an optimizer has already ended it: the next step begins with the next optimizer step, or
        with a call of `log` before that."""
        self.stride = 1
        """By how much a call of `log` increases the number; 0 once batches or an optimizer count steps."""
        self.first_step = 0
        """The number of the step at which optimizers were first followed."""
        self.steps_made = 0
        """How often an optimizer has ended a step."""
        self.in_batches = False
        """Whether a step ends with its batch, and not immediately when an optimizer has stepped."""
        self.every_batch = False
        """Whether every batch ends a step, with or without an optimizer."""
        self.is_special = False
        """Whether `on_step` ends the current step."""
        self.left = FOREVER
        """Steps until `on_step` ends one."""
        self.due_ns = FOREVER
        """When `on_due` is to be called."""
        self.most_batches = 0
        """The maximum number of batches of a step that has not been taken yet."""
        self._last_optimizer: Callable[[], Any] = _nothing
        self.on_other: Callable[[Any], int] | None = None
        """Called with another optimizer that steps. Returns 0 if it ends no training steps, 1 if it does from
        now on, 2 if it does once the last optimizer has stopped stepping."""
        self.held: Any = None
        """The current batch."""
        self.on_step: Callable[[int], Any] | None = None
        """Ends a step that is not plain; called with the end time."""
        self.on_due: Callable[[], Any] | None = None
        """Called after a step or batch once `due_ns` has passed."""
        self.on_batch: Callable[[], Any] | None = None
        """Returns whether a batch ends a step although no optimizer has stepped; None: it does not."""
        self.on_optimizer: Callable[[Any], Any] | None = None
        """Called when an optimizer has stepped; calls `make_step` if that ends a step. None: it ends one."""
        self.on_asked: Callable[[], Any] | None = None
        """Called before a batch is fetched, if there is an `on_got`."""
        self.on_got: Callable[[], Any] | None = None
        """Called after a batch was fetched."""
        self._rows: list[tuple[Any, ...]] = []
        self._last_logged: int | None = None
        """The last step that a log call has ended."""
        self._others = 0
        """Number of steps by other optimizers since the last step of `last_optimizer`."""

    @property
    def last_optimizer(self) -> Any:
        """The optimizer whose steps end the training's steps; None while unknown, or if it was deleted.

        It is not kept alive: its state may be larger than the model.
        """
        return self._last_optimizer()

    @last_optimizer.setter
    def last_optimizer(self, optimizer: Any) -> None:
        self._last_optimizer = _nothing if optimizer is None else weakref.ref(optimizer)

    def optimizer_stepped(self, optimizer: Any, *_: Any) -> None:
        """The post-step hook of optimizers."""
        if self.on_optimizer is not None:
            self.on_optimizer(optimizer)
        elif self.ends_step(optimizer):
            self.make_step()

    def ends_step(self, optimizer: Any) -> bool:
        """Whether a step of this optimizer ends a training step."""
        if self._last_optimizer() is not optimizer:
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
        """Ends a step after an optimizer step, or marks it to end with its batch."""
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
        """Ends a step at its log call, if nothing else ends it; the call has already increased the number."""
        if self.step - 1 == self._last_logged:
            return
        self.step -= 1
        self._last_logged = self.step
        self._end_step(monotonic_ns())
        self.step += 1

    def end_batch(self) -> None:
        """Ends a batch; `batches_of` calls it after each one."""
        ended_ns = monotonic_ns()
        self.batches += 1
        if self.is_made or self.every_batch or (self.on_batch is not None and self.on_batch()):
            self._end_step(ended_ns)
            self.step += 1
        elif ended_ns >= self.due_ns and self.on_due is not None:
            self.on_due()

    def take(self, columns: int) -> bytes:
        """Removes and returns the ended plain steps, packed as `Writer.append_rows` expects them.

        The columns are: end time, step number, seconds, wait for data, batches; only the first `columns`.
        """
        rows, self._rows, self.most_batches = self._rows, [], 0
        pack = Struct(f"<qq{columns - 2}d").pack
        return b"".join(pack(*row[:columns]) for row in rows)

    def batches_of(self, source: Iterator[Batch], finish: Callable[[bool], Any]) -> Iterator[Batch]:
        """Yields the batches of one pass; then calls `finish`, with True if the loop left early."""
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
            finish(True)  # noqa: FBT003 - also called from C, by position
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
            self._rows.clear()  # nothing takes them
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
