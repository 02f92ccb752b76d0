"""Detects what a loop does with its batches: whether it trains or evaluates, and where a step ends."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepscope.steps.model_calls import ModelCalls
    from stepscope.steps.step_timer import StepTimer

MAX_BATCHES_WITHOUT_STEP = 64
"""After this many batches without an optimizer step, each batch counts as a step."""

MAX_UNCLEAR = 3
"""Batches whose model calls are checked to decide whether a pass over data trains or evaluates."""

MAX_READ = 4096
"""Maximum elements of a parameter that are read to detect a change."""


class PassPurpose:
    """What the current pass over data is for: training or evaluation."""

    def __init__(self, timer: StepTimer, calls: ModelCalls, is_grad_enabled: Callable[[], bool]) -> None:
        self._timer, self._calls, self._is_grad_enabled = timer, calls, is_grad_enabled
        self.trains: bool | None = None
        """Whether the pass trains; None while unknown."""
        self.trained = self.evaluated = False
        """Whether the model was called for training, or for evaluation, since the last step."""
        self.trains_in_eval_mode = False
        """Whether steps were made with a model in evaluation mode, as with frozen statistics."""
        self._has_ever_trained = self._began_within_step = False
        self._unclear = self._made_before = 0
        self._last_parameter: tuple[int, int, float] | None = None
        """The id of a parameter, its version counter and its sum."""
        self.has_optimizers = False
        """Whether an optimizer passed by the user has stepped that does not end steps."""
        self._reads_values = False
        """Whether the values of that parameter are read, so that no change is missed."""
        self.on_unchanged: Callable[[int], None] = lambda _: None
        """Called once with a number of batches in which nothing has changed that parameter."""
        self._is_functional = False
        """Whether the model is called with parameters that are not its own, as by `torch.func`."""

    def begin(self) -> None:
        """Starts a pass."""
        self.trains, self._unclear, self._made_before = None, 0, self._timer.steps_made
        if not self._made_before:
            self.has_changed()

    def begin_within_step(self) -> None:
        """Notes that the current step began before it was watched, so that its model calls are not known."""
        self._began_within_step = True

    def follow_call(self, model: Any, *, trains: bool) -> None:
        """Notes a call of the model, for training or for evaluation."""
        if not trains:
            self.evaluated = True
            return
        self.trained = True
        if not self._timer.steps_made and self._last_parameter is not None and not self._is_functional:
            with contextlib.suppress(Exception):  # a model of the user's own may raise anything
                own = self._last_parameter[0]
                self._is_functional = all(id(parameter) != own for parameter in model.parameters())

    def forget_calls(self) -> None:
        """Resets the noted calls after a step."""
        self._has_ever_trained |= self.trained
        self.trained = self.evaluated = self._began_within_step = False

    def calls_another_method(self) -> bool:
        """Whether a loop that computes gradients seems to call another method than `forward`."""
        if self.trained or self._has_ever_trained or self._began_within_step:
            return False
        self.trains_in_eval_mode = self.evaluated
        return not self.evaluated

    def looks_like_evaluation(self) -> bool:
        """Whether the next pass likely evaluates: gradients are off, or a model is in evaluation mode."""
        return not self._is_grad_enabled() or self._in_eval_mode()

    def follow_batch(self) -> bool:
        """Notes a batch after which no optimizer has stepped; returns whether more calls must be checked."""
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
        """Whether such a batch ends a step: parameters were changed by hand, or there is no optimizer."""
        if self._timer.steps_made or self.has_optimizers:
            return False
        if self._is_functional or self.has_changed():
            return True
        if self._timer.batches < MAX_BATCHES_WITHOUT_STEP:
            return False
        if self._reads_values:
            self.on_unchanged(self._timer.batches)
        return True

    def _in_eval_mode(self) -> bool:
        return any(getattr(model, "training", True) is False for model in self._calls.models)

    def has_changed(self) -> bool:
        """Whether a parameter has changed since the last call; never waits for a GPU."""
        before = self._last_parameter
        with contextlib.suppress(Exception):  # a model of the user's own may raise anything
            parameter = self._small_parameter()
            if parameter is None:
                return False
            tensor = parameter.detach()
            # A tensor of another class may be sharded over ranks, and reading it would wait for all of them.
            is_plain = type(tensor).__name__ == "Tensor" and tensor.device.type == "cpu"
            can_read = is_plain and (tensor.numel() <= MAX_READ or tensor.is_contiguous())
            self._reads_values = can_read
            value = tensor.reshape(-1)[:MAX_READ].double().sum().item() if can_read else 0.0
            self._last_parameter = id(parameter), parameter._version, value  # noqa: SLF001 - torch's own
        return before is not None and before != self._last_parameter

    def _small_parameter(self) -> Any:
        """The first trainable parameter that is small enough to be read, or else the first trainable one."""
        chosen = None
        for model in self._calls.models:
            for parameter in model.parameters() if hasattr(model, "parameters") else ():
                if parameter.requires_grad and (chosen is None or parameter.numel() <= MAX_READ):
                    chosen = parameter
                    if parameter.numel() <= MAX_READ:
                        return chosen
        return chosen
