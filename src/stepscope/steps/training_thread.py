"""Finds out which thread trains: often another one than the thread that has set up the watch."""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepscope.steps.optimizer_steps import OptimizerSteps
    from stepscope.steps.step_timer import StepTimer


class TrainingThread:
    """The thread that has called `watch`, until an optimizer steps in another one."""

    def __init__(self, optimizers: OptimizerSteps, timer: StepTimer, move: Callable[[], None]) -> None:
        self._timer, self._move = timer, move
        self._thread = get_ident()
        self._first_step = optimizers.after_step(self._follow)

    def is_this(self) -> bool:
        """Whether the caller trains."""
        return get_ident() == self._thread

    def _follow(self, optimizer: Any) -> None:
        if self._timer.last_optimizer not in (None, optimizer):
            return
        self._first_step.remove()
        if not self.is_this():
            self._thread = get_ident()
            self._move()
