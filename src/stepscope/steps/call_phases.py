"""Moves the chain of phases on when a model is called and when an optimizer steps."""

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
    """Forward and evaluation, told apart by how the model is called, and the optimizer's phase."""

    purpose: PassPurpose
    """Is told of calls."""
    census: TrainingSetup
    """Counts tensors within the forward pass when it is due."""

    def __init__(self, chain: PhaseTimer, is_grad_enabled: Callable[[], bool]) -> None:
        self._chain, self._is_grad_enabled = chain, is_grad_enabled
        self._thread = get_ident()
        self._before_optimizer = OTHER
        self.is_timed = False
        """Whether the current step is timed phase by phase."""

    def begin(self) -> None:
        """From now on phases of this thread are timed."""
        self.is_timed = True
        self._thread = get_ident()

    @never_compiled
    def call_begins(self, model: Any) -> int:
        """A model that is watched is called; its inner modules are left alone."""
        before, purpose = self._chain.phase, self.purpose
        if before in (FORWARD, EVAL) or get_ident() != self._thread:
            return -1
        is_training = (
            purpose.trains is True or purpose.trains_in_eval_mode or getattr(model, "training", True)
        )
        trains = is_training and self._is_grad_enabled()
        purpose.follow_call(model, trains=trains)
        if trains and self.census.wants_forward:
            self.census.in_forward()
        return self._chain.enter(FORWARD if trains else EVAL)

    @never_compiled
    def call_ends(self, before: int) -> None:
        """The call is over; what came before it goes on."""
        if before >= 0:
            self._chain.enter(before)

    def optimizer_begins(self, closure: Closure | None) -> Closure | None:
        """An optimizer is about to step; what its closure does is no part of its own phase."""
        if not self.is_timed:
            return None
        self._before_optimizer = self._chain.enter(OPTIMIZER)
        return None if closure is None else self._apart(closure)

    def _apart(self, closure: Closure) -> Closure:
        @passes_through
        def call(*arguments: Any, **options: Any) -> Any:
            before = self._chain.enter(OTHER)
            try:
                return closure(*arguments, **options)
            finally:
                self._chain.enter(before)

        return call

    def optimizer_ends(self) -> None:
        """It has stepped; what came before that goes on."""
        if self.is_timed and self._chain.phase == OPTIMIZER:
            self._chain.enter(self._before_optimizer)
