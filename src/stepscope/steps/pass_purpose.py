"""Finds out what a loop does with its batches: whether it trains or evaluates, and where a step ends."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepscope.steps.model_calls import ModelCalls
    from stepscope.steps.step_timer import StepTimer

PATIENCE = 64
"""So many batches without an optimizer step mean that there is none, and that each batch is a step."""

MAX_UNCLEAR = 3
"""Batches whose model calls are looked at to find out whether a pass over data trains or evaluates."""

MAX_READ = 4096
"""Elements of a parameter that is read to see whether somebody has changed it."""


class PassPurpose:
    """What the present pass over data is for."""

    def __init__(self, timer: StepTimer, calls: ModelCalls, is_grad_enabled: Callable[[], bool]) -> None:
        self._timer, self._calls, self._is_grad_enabled = timer, calls, is_grad_enabled
        self.trains: bool | None = None
        """None while it is not known."""
        self.trained = self.evaluated = False
        """Whether the model was called for training, or for evaluation, since the last step."""
        self.trains_in_eval_mode = False
        """Whether steps were made with a model in evaluation mode, as with frozen statistics."""
        self._has_ever_trained = False
        self._unclear = self._made_before = 0
        self._seen: tuple[int, int, float] | None = None
        """A parameter, how often it was changed, and its sum."""
        self.has_optimizers = False
        """Whether an optimizer that was named has stepped, though none that ends steps."""
        self._is_functional = False
        """Whether the model is called with parameters that are not its own, as by `torch.func`."""

    def begin(self) -> None:
        """A pass begins."""
        self.trains, self._unclear, self._made_before = None, 0, self._timer.steps_made
        if not self._made_before:
            self.has_changed()

    def follow_call(self, model: Any, *, trains: bool) -> None:
        """The model is called, for training or for evaluation."""
        if not trains:
            self.evaluated = True
            return
        self.trained = True
        if not self._timer.steps_made and self._seen is not None and not self._is_functional:
            with contextlib.suppress(Exception):  # a model of the user's own may raise anything
                own = self._seen[0]
                self._is_functional = all(id(parameter) != own for parameter in model.parameters())

    def forget_calls(self) -> None:
        """A step has ended."""
        self._has_ever_trained |= self.trained
        self.trained = self.evaluated = False

    def calls_another_method(self) -> bool:
        """Whether a loop whose gradients were computed seems to call another method than `forward`."""
        if self.trained or self._has_ever_trained:
            return False
        self.trains_in_eval_mode = self.evaluated
        return not self.evaluated

    def looks_like_evaluation(self) -> bool:
        """Whether what is about to begin evaluates, by what can be told beforehand."""
        return not self._is_grad_enabled() or self._in_eval_mode()

    def follow_batch(self) -> bool:
        """Takes in a batch after which no optimizer has stepped; whether calls of the next may tell more."""
        if self.evaluated and not self.trained and self.trains is not True:
            self.trains = False
        elif self.trained or self._timer.steps_made > self._made_before:
            self.trains = True
        elif self.trains is None:
            self._unclear += 1
            if self.looks_like_evaluation():
                self.trains = False
            elif self._unclear > MAX_UNCLEAR:
                self.trains = True
            return True
        return False

    def ends_step(self) -> bool:
        """Whether that batch ends a step all the same: parameters were changed by hand, or nobody steps."""
        if self._timer.steps_made or self.has_optimizers:
            return False
        return self._is_functional or self.has_changed() or self._timer.batches >= PATIENCE

    def _in_eval_mode(self) -> bool:
        return any(getattr(model, "training", True) is False for model in self._calls.models)

    def has_changed(self) -> bool:
        """Whether a parameter is another than when it was last asked; nothing waits for a GPU here."""
        before = self._seen
        with contextlib.suppress(Exception):  # a model of the user's own may raise anything
            parameter = self._small_parameter()
            if parameter is None:
                return False
            tensor = parameter.detach()
            # One of another class may lie on several ranks, and reading it would wait for all of them.
            is_plain = type(tensor).__name__ == "Tensor" and tensor.device.type == "cpu"
            value = tensor.double().sum().item() if is_plain and tensor.numel() <= MAX_READ else 0.0
            self._seen = id(parameter), parameter._version, value  # noqa: SLF001 - torch's own
        return before is not None and before != self._seen

    def _small_parameter(self) -> Any:
        """One that is trained, the first that is small enough to be read if there is one."""
        found = None
        for model in self._calls.models:
            for parameter in model.parameters() if hasattr(model, "parameters") else ():
                if parameter.requires_grad and (found is None or parameter.numel() <= MAX_READ):
                    found = parameter
                    if parameter.numel() <= MAX_READ:
                        return found
        return found
