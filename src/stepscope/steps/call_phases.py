"""Switches phases when a model is called and when an optimizer steps."""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING, Any

from stepscope.steps.compiled_code import never_compiled, passes_through
from stepscope.steps.phase_timer import EVAL, FORWARD, OPTIMIZER, OTHER

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepscope.steps.evidence.training_setup import TrainingSetup
    from stepscope.steps.optimizer_steps import Closure
    from stepscope.steps.pass_purpose import PassPurpose
    from stepscope.steps.phase_timer import PhaseTimer


class CallPhases:
    """Enters the forward or evaluation phase at model calls, and the optimizer phase at optimizer steps."""

    purpose: PassPurpose
    """Receives each model call."""
    training_setup: TrainingSetup
    """Reads the autocast mode in a forward pass when it is due."""

    def __init__(self, phase_timer: PhaseTimer, is_grad_enabled: Callable[[], bool]) -> None:
        self._phase_timer, self._is_grad_enabled = phase_timer, is_grad_enabled
        self._thread = get_ident()
        self._before_optimizer = OTHER
        self.is_timed = False
        """Whether the current step is timed phase by phase."""

    def begin(self) -> None:
        """Starts timing the phases of the calling thread."""
        self.is_timed = True
        self._thread = get_ident()

    @never_compiled
    def call_begins(self, model: Any) -> int:
        """Enters the phase of a watched model's call, and returns the phase before it.

        Returns -1 for calls of modules inside a call, and in other threads: these change no phase.
        """
        before, purpose = self._phase_timer.phase, self.purpose
        if before in (FORWARD, EVAL) or get_ident() != self._thread:
            return -1
        is_training = (
            purpose.trains is True or purpose.trains_in_eval_mode or getattr(model, "training", True)
        )
        trains = is_training and self._is_grad_enabled()
        purpose.follow_call(model, trains=trains)
        if trains and self.training_setup.needs_forward:
            self.training_setup.read_autocast()
        return self._phase_timer.enter(FORWARD if trains else EVAL)

    @never_compiled
    def call_ends(self, before: int) -> None:
        """Returns to the phase before the call."""
        if before >= 0:
            self._phase_timer.enter(before)

    def optimizer_begins(self, closure: Closure | None) -> Closure | None:
        """Enters the optimizer phase; returns a closure to use instead, whose time is not part of it."""
        if not self.is_timed:
            return None
        self._before_optimizer = self._phase_timer.enter(OPTIMIZER)
        return None if closure is None else self._outside_optimizer(closure)

    def _outside_optimizer(self, closure: Closure) -> Closure:
        @passes_through
        def call(*arguments: Any, **options: Any) -> Any:
            before = self._phase_timer.enter(OTHER)
            try:
                return closure(*arguments, **options)
            finally:
                self._phase_timer.enter(before)

        return call

    def optimizer_ends(self) -> None:
        """Returns to the phase before the optimizer step."""
        if self.is_timed and self._phase_timer.phase == OPTIMIZER:
            self._phase_timer.enter(self._before_optimizer)
