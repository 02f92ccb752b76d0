"""Excludes the time in which a model is in evaluation mode from the current step.

Loops evaluate between two steps in different ways, but nearly all call `model.eval()` before and
`model.train()` after it. Both call the `train` method of the model's class, which is replaced while the model
is watched; calls of other instances of the class pass through.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from stepscope.steps.compiled_code import never_compiled, passes_through
from stepscope.steps.patches import Installed, install, remove_all

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepscope.steps.phase_timer import Pause, PhaseTimer, StepTimes


MIN_EVALUATION_NS = 1_000_000
"""A shorter time in evaluation mode contains no evaluation: the loop only switched the mode."""


class EvaluationMode:
    """Follows `model.eval()` and `model.train()` of the watched models, and reports each evaluation."""

    def __init__(
        self,
        phase_timer: PhaseTimer,
        report: Callable[[StepTimes], None],
        is_training_thread: Callable[[], bool],
    ) -> None:
        self._phase_timer, self._report, self._is_training_thread = phase_timer, report, is_training_thread
        self._models: weakref.WeakSet[Any] = weakref.WeakSet()
        self._installed: Installed = []
        self._pause: Pause | None = None
        self._steps_made = 0
        self.on_eval: Callable[[], None] = lambda: None
        """Called when a model is set to evaluation mode."""

    @property
    def is_evaluating(self) -> bool:
        """Whether an evaluation is in progress."""
        return self._pause is not None

    def add(self, model: Any) -> None:
        """Follows the mode of a model, if it has one."""
        kind = type(model)
        if not hasattr(kind, "train") or not hasattr(model, "training"):
            return
        self._models.add(model)
        if all(owner is not kind for owner, *_ in self._installed):
            install(self._installed, kind, "train", lambda original: self._followed(kind, original))

    def end(self) -> None:
        """Ends and reports the evaluation in progress, if there is one."""
        pause, self._pause = self._pause, None
        if pause is None or monotonic_ns() - pause.began < MIN_EVALUATION_NS:
            return
        # A loop that steps in evaluation mode, as with frozen statistics, is training.
        if self._phase_timer.timer.steps_made == self._steps_made:
            self._report(self._phase_timer.resume(pause))

    def end_if_training(self) -> None:
        """Ends the evaluation if the models are in training mode again, although `train` was not called."""
        if self._pause is not None and self._is_training():
            self.end()

    def end_within_step(self, ended_ns: int, usual_ns: float | None) -> None:
        """Reports an evaluation within the step that ends, if the end of the evaluation was not seen.

        Lightning sets `training` of every module directly. Then the step is assumed to have taken as long as
        a typical step, and the rest of its time is the evaluation.
        """
        if self._pause is None or usual_ns is None or not self._is_training():
            return
        took = min(
            round(ended_ns - self._phase_timer.timer.began_ns - usual_ns), ended_ns - self._pause.began
        )
        self._pause = None
        if took >= MIN_EVALUATION_NS:
            self._report(self._phase_timer.exclude(ended_ns, took))

    def forget(self) -> None:
        """Discards the evaluation in progress: the caller reports it."""
        self._pause = None

    def close(self) -> None:
        """Restores the classes of the models."""
        self.end()
        remove_all(self._installed)

    @never_compiled
    def _follow(self, model: Any) -> None:
        if self._is_training_thread() and model in self._models:
            if model.training:
                self.end()
            else:
                self._begin()

    def _is_training(self) -> bool:
        return any(model.training for model in self._models)

    def _begin(self) -> None:
        if self._pause is None:
            self._phase_timer.timer.is_special = (
                True  # the timer then calls `on_step` at the end of this step
            )
            self._pause, self._steps_made = self._phase_timer.pause(), self._phase_timer.timer.steps_made
            if self._phase_timer.device is not None:
                self._phase_timer.device.abandon()
            self.on_eval()

    def _followed(self, kind: Any, original: Callable[..., Any]) -> Callable[..., Any]:
        # An inherited method is looked up at every call: it may be replaced in the meantime.
        @passes_through
        def inherited(model: Any, *arguments: Any, **options: Any) -> Any:
            return super(kind, model).train(*arguments, **options)  # type: ignore[misc]  # it has one

        method = original if "train" in vars(kind) else inherited

        @passes_through
        @functools.wraps(original)
        def train(model: Any, *arguments: Any, **options: Any) -> Any:
            result = method(model, *arguments, **options)
            with contextlib.suppress(Exception):  # a failure of stepscope must not stop the training
                self._follow(model)
            return result

        return train
