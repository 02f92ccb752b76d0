"""Decides which of a program's optimizers ends a training step.

The first optimizer that steps does. Others that take turns with it, as those of a GAN do, belong to the same
training, which has one step for each turn. An optimizer that was created later, or whose loss does not depend
on the model of the last one, starts another training, as a loop over folds or members of an ensemble does. If
it existed before, as one that trains a probe beside the model now and then, its second step in a row decides.
"""

from __future__ import annotations

import weakref
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from stepscope.steps.compiled_code import never_compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from stepscope.steps.step_timer import StepTimer

MIN_STEPS = 2
"""After this many steps, all optimizers that take turns have stepped."""

TAKEOVER = 3
"""After this many steps of another optimizer, without one of the optimizer that ends steps, it ends them."""

NO_STEP, ENDS_STEPS = 0, 1


class StepOwner:
    """Decides whether the step of another optimizer than the last one ends a training step."""

    def __init__(
        self,
        timer: StepTimer,
        trains: Callable[[Any], bool],
        is_separate: Callable[[Any], bool],
        on_another: Callable[[], None],
    ) -> None:
        self._timer, self._trains, self._is_separate = timer, trains, is_separate
        self._on_another = on_another
        """Called when another training starts, before the end of its first step."""
        self._stepped_at: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        """Steps made when each other optimizer last stepped."""
        self._known: weakref.WeakSet[Any] = weakref.WeakSet()
        self._made = 0
        """Steps made when another optimizer last stepped."""
        self._turns: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        """Steps of each other optimizer since then."""
        self._beside: weakref.WeakSet[Any] = weakref.WeakSet()
        """Optimizers that have stepped once between two steps of the one that ends steps."""
        self._undecided: Any = None
        """A weak reference to an optimizer that starts another training if it steps again."""
        self._first_ns = 0
        """When it has stepped."""

    def is_undecided(self, optimizer: Any) -> bool:
        """Whether the step that this optimizer has just made ends a training step if it makes another one."""
        return self._undecided is not None and self._undecided() is optimizer

    def add_known(self, optimizers: Iterable[Any]) -> None:
        """Adds the optimizers that exist when a training begins: none of them starts another one."""
        for optimizer in optimizers:
            self._known.add(optimizer)

    @never_compiled
    def kind(self, optimizer: Any) -> int:
        """1 if an optimizer ends training steps from now on, 0 if it ends none; for `StepTimer.on_other`."""
        try:
            return self._kind(optimizer)
        except Exception:  # noqa: BLE001 - an optimizer of the user's own may raise anything
            return NO_STEP

    def _kind(self, optimizer: Any) -> int:
        timer = self._timer
        if not self._trains(optimizer):
            return NO_STEP
        is_new = optimizer not in self._known
        self._known.add(optimizer)
        last, steps_since = timer.last_optimizer, timer.steps_made - self._stepped_at.get(optimizer, 0)
        self._stepped_at[optimizer] = timer.steps_made
        self._begin_round()
        if not timer.steps_made:
            self._take_over(last)
            return ENDS_STEPS
        is_second = self.is_undecided(optimizer)
        if last is None or is_second or (steps_since >= MIN_STEPS and is_new):
            self._on_another()
            if is_second:
                self._end_first_step()
            self._take_over(last)
            return ENDS_STEPS
        if steps_since >= MIN_STEPS and optimizer not in self._beside and self._is_separate(last):
            self._undecided, self._first_ns = weakref.ref(optimizer), monotonic_ns()
            return NO_STEP
        turns = self._turns[optimizer] = self._turns.get(optimizer, 0) + 1
        if turns < TAKEOVER:
            return NO_STEP
        self._take_over(last)
        return ENDS_STEPS

    def _begin_round(self) -> None:
        """Forgets the turns of other optimizers, if the one that ends steps has stepped since."""
        if self._timer.steps_made == self._made:
            return
        self._made = self._timer.steps_made
        self._turns.clear()
        beside = None if self._undecided is None else self._undecided()
        if beside is not None:
            self._beside.add(beside)
        self._undecided = None

    def _end_first_step(self) -> None:
        """Ends the first of two steps that the second has decided about, at the time at which it was made."""
        timer = self._timer
        timer.began_ns += monotonic_ns() - self._first_ns
        timer.make_step()
        timer.began_ns = self._first_ns

    def _take_over(self, last: Any) -> None:
        self._turns.clear()
        self._undecided = None
        if last is not None:
            self._stepped_at[last] = self._timer.steps_made
