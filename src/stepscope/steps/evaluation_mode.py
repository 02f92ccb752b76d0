"""Takes the time in which a model is in evaluation mode out of the current step.

A loop evaluates between two steps as it likes; what nearly all have in common are `model.eval()` before it
and `model.train()` after it. So the `train` method of the model's class, which both call, is replaced while
the model is watched; for all other instances of the class a call passes through.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from stepscope.steps.compiled_code import never_compiled, passes_through
from stepscope.steps.patches import Installed, install, put_all_back

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepscope.steps.phase_timer import Cut, Pause, PhaseTimer


SHORTEST_NS = 1_000_000
"""Who changes the mode for less has evaluated nothing: that is about to begin, or was called off."""


class EvaluationMode:
    """Whether the watched models evaluate at the moment, as they were told to."""

    def __init__(
        self, chain: PhaseTimer, tell: Callable[[Cut], None], is_training_thread: Callable[[], bool]
    ) -> None:
        self._chain, self._tell, self._is_training_thread = chain, tell, is_training_thread
        self._models: weakref.WeakSet[Any] = weakref.WeakSet()
        self._installed: Installed = []
        self._pause: Pause | None = None
        self._steps_made = 0

    def add(self, model: Any) -> None:
        """Follows the mode of a model, if it has one."""
        kind = type(model)
        if not hasattr(kind, "train") or not hasattr(model, "training"):
            return
        self._models.add(model)
        if all(owner is not kind for owner, *_ in self._installed):
            install(self._installed, kind, "train", lambda original: self._followed(kind, original))

    def end(self) -> None:
        """Tells of an evaluation that is under way: something else begins."""
        pause, self._pause = self._pause, None
        if pause is None or monotonic_ns() - pause.began < SHORTEST_NS:
            return
        # Who trains in evaluation mode, as with frozen statistics, does not evaluate.
        if self._chain.timer.steps_made == self._steps_made:
            self._tell(self._chain.go_on(pause))

    def end_if_training(self) -> None:
        """The same, where the models are in training mode again though nobody called `train`."""
        if self._pause is not None and self._is_training():
            self.end()

    def end_within_step(self, ended_ns: int, usual_ns: float | None) -> None:
        """Tells of an evaluation within the step that ends, whose own end nobody has said.

        Lightning sets `training` of every module by itself. Then the step is taken to have lasted as long as
        a step usually does, and the rest of its time for the evaluation.
        """
        if self._pause is None or usual_ns is None or not self._is_training():
            return
        took = min(round(ended_ns - self._chain.timer.began_ns - usual_ns), ended_ns - self._pause.began)
        self._pause = None
        if took >= SHORTEST_NS:
            self._tell(self._chain.leave_out(ended_ns, took))

    def forget(self) -> None:
        """What is under way is told of by somebody else."""
        self._pause = None

    def close(self) -> None:
        """Leaves the classes of the models as they were."""
        self.end()
        put_all_back(self._installed)

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
            self._chain.timer.is_special = True  # so that the end of the step is told
            self._pause, self._steps_made = self._chain.pause(), self._chain.timer.steps_made
            if self._chain.device is not None:
                self._chain.device.abandon()

    def _followed(self, kind: Any, original: Callable[..., Any]) -> Callable[..., Any]:
        # What is inherited is looked up at every call: somebody may replace it meanwhile.
        @passes_through
        def inherited(model: Any, *arguments: Any, **options: Any) -> Any:
            return super(kind, model).train(*arguments, **options)  # type: ignore[misc]  # it has one

        method = original if "train" in vars(kind) else inherited

        @passes_through
        @functools.wraps(original)
        def train(model: Any, *arguments: Any, **options: Any) -> Any:
            result = method(model, *arguments, **options)
            with contextlib.suppress(Exception):  # a failure of ours must not end the training
                self._follow(model)
            return result

        return train
