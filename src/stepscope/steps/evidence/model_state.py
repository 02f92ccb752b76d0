"""Reads watched models after optimizer steps: what no optimizer updates, and modes of evaluation."""

from __future__ import annotations

import time
import weakref
from typing import TYPE_CHECKING, Any

from stepscope.steps.evidence.compile_counts import unused_compilation
from stepscope.steps.evidence.gradient_flow import GradientFlow
from stepscope.steps.evidence.parameter_updates import ParameterUpdates, parameter_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stepscope.guard import Guard
    from stepscope.steps.evidence.training_setup import TrainingSetup
    from stepscope.steps.memory.out_of_memory import WatchedObjects
    from stepscope.steps.optimizer_steps import OptimizerSteps
    from stepscope.steps.step_timer import StepTimer

INTERVAL_S = 60.0
"""How often the parameters are checked again: a model may be changed, and an optimizer replaced."""

CHECK_STEPS = 10
"""Steps until parameters are first read, so that all optimizers of a loop have stepped, and from then until
they are read again."""

MODE_STEPS = 2
"""Steps in which the mode of the models is read: each of their optimizers steps at least once."""

EVAL_STEPS = 20
"""A model that stays in evaluation mode for this many steps is trained in it."""


class ModelState:
    """A probe that reads the watched models after optimizer steps, and adds what it finds to the setup.

    It is called in the first steps of each model, in a few once a minute, and in those after a model was set
    to evaluation mode; at other steps it costs nothing. It reads attributes and no values, so it never waits
    for a GPU.
    """

    def __init__(
        self,
        watched_objects: WatchedObjects,
        optimizer_steps: OptimizerSteps,
        setup: TrainingSetup,
        guard: Guard,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._watched_objects, self._flow = watched_objects, GradientFlow(guard)
        self._optimizer_steps, self._timer = optimizer_steps, optimizer_steps.timer
        self._setup, self._now = setup, now
        self._updates = ParameterUpdates(watched_objects)
        self._modes = ModelModes(watched_objects, self._timer)
        self._listener: Any = None
        self._error: Exception | None = None
        self._until = 0
        self._begun_at = 0
        """The number of steps made when parameters were read for the first time."""
        self._check_at: int | None = None
        """The number of steps made at which parameters are read next; None while no check is due."""
        self._due_at = 0.0
        self._is_never_updated = False
        watched_objects.on_added = self._begin_check
        optimizer_steps.purpose.on_unchanged = self._note_unchanged

    def read(self, steps: int) -> Mapping[str, float]:
        """Starts a check if one is due or the mode of a model has changed; reports an earlier failure."""
        if self._error is not None:
            raise self._error
        if self._check_at is None and self._now() >= self._due_at:
            self._begin_check()
        elif self._modes.may_have_changed():
            self.follow_modes()
        return {}

    def follow_modes(self) -> None:
        """Reads the modes of the models at the next steps, and longer if one is in evaluation mode."""
        self._listen(MODE_STEPS)

    def close(self) -> None:
        """Removes the listener."""
        self._flow.close()
        if self._listener is not None:
            self._listener.remove()
            self._listener = None

    def _begin_check(self) -> None:
        self._due_at = self._now() + INTERVAL_S
        self._updates.forget()
        self._flow.close()
        self._modes.forget_optimizers()
        self._check_at = self._timer.steps_made + CHECK_STEPS
        self._listen(CHECK_STEPS)

    def _listen(self, steps: int) -> None:
        self._until = max(self._until, self._timer.steps_made + steps)
        if self._listener is None and self._error is None:
            self._listener = self._optimizer_steps.after_step(self._follow)

    def _follow(self, optimizer: Any) -> None:
        try:
            self._follow_step(optimizer)
        except Exception as error:  # noqa: BLE001 - a model or optimizer of the user's own may raise anything
            self._error = error  # the next reading reports it
            self.close()

    def _note_unchanged(self, batches: int) -> None:
        """Notes optimizers that have not stepped in so many batches, while nothing else changed the model."""
        kinds = sorted({type(optimizer).__name__ for optimizer in self._watched_objects.optimizers})
        if kinds:
            self._is_never_updated = True
            self._setup.add({"never_updated": {"batches": batches, "optimizers": kinds}})

    def _follow_step(self, optimizer: Any) -> None:
        made = self._timer.steps_made
        facts = self._modes.follow(optimizer)
        if self._is_never_updated:
            self._is_never_updated, facts = False, {**facts, "never_updated": None}
        self._updates.add(optimizer)
        self._flow.follow(optimizer)
        if self._check_at is not None and made >= self._check_at:
            facts |= self._check(made)
        if facts:
            self._setup.add(facts)
        if made > self._until and self._check_at is None and not self._modes.is_undecided():
            self.close()

    def _check(self, made: int) -> dict[str, Any]:
        if not self._updates.has_begun:
            self._updates.begin()
            for model in self._updates.trained_models():
                self._flow.begin(model, parameter_ids(self._updates.known_optimizers()))
            self._begun_at, self._check_at = made, made + CHECK_STEPS
            return {}
        self._check_at = None
        kept = self._updates.kept_gradients(made - self._begun_at)
        facts = {**self._updates.result(), **kept, **self._flow.result(), **self._modes.current()}
        unused = unused_compilation(self._watched_objects.models)
        return {**facts, "compiled_but_unused": unused} if unused else facts


class ModelModes:
    """Follows whether models are in training or evaluation mode when an optimizer updates them."""

    def __init__(self, watched_objects: WatchedObjects, timer: StepTimer) -> None:
        self._watched_objects, self._timer = watched_objects, timer
        self._trained: weakref.WeakSet[Any] = weakref.WeakSet()
        """Models that were updated in training mode."""
        self._since: weakref.WeakKeyDictionary[Any, tuple[int, int]] = weakref.WeakKeyDictionary()
        """Models that are updated in evaluation mode: the step it began with, and the steps made then."""
        self._confirmed: weakref.WeakKeyDictionary[Any, dict[str, Any]] = weakref.WeakKeyDictionary()
        """What to record of those that stayed so for `EVAL_STEPS`."""
        self._models_of: weakref.WeakKeyDictionary[Any, weakref.WeakSet[Any]] = weakref.WeakKeyDictionary()
        """The models that each optimizer updates."""

    def forget_optimizers(self) -> None:
        """Forgets which models the optimizers update: they may get further parameters."""
        self._models_of.clear()

    def may_have_changed(self) -> bool:
        """Whether a model that is updated is in another mode than was recorded."""
        updated = (model for models in self._models_of.values() for model in models)
        return any(model.training is (model in self._confirmed) for model in updated)

    def is_undecided(self) -> bool:
        """Whether a model has been in evaluation mode for a few steps."""
        return any(model not in self._confirmed for model in self._since)

    def follow(self, optimizer: Any) -> dict[str, Any]:
        """Reads the modes of the models that an optimizer has updated; returns what has changed."""
        models = self._models_of.get(optimizer)
        if models is None:
            updated = parameter_ids([optimizer])
            models = self._models_of[optimizer] = weakref.WeakSet(
                model
                for model in self._watched_objects.models
                if any(id(parameter) in updated for parameter in model.parameters())
            )
        has_changed = [self._follow_model(model) for model in models]
        return self.current() if any(has_changed) else {}

    def current(self) -> dict[str, Any]:
        """The facts to record."""
        in_eval = next(iter(self._confirmed.values()), None)
        return {"mode": {"training": True} if in_eval is None else in_eval}

    def _follow_model(self, model: Any) -> bool:
        """Returns whether the mode to record has changed."""
        if model.training:
            self._trained.add(model)
            self._since.pop(model, None)
            return self._confirmed.pop(model, None) is not None
        timer = self._timer
        # After a step that an optimizer has ended, the number is still that of this step.
        step, made = self._since.setdefault(model, (timer.step + timer.is_over, timer.steps_made))
        if model in self._confirmed or timer.steps_made - made + 1 < EVAL_STEPS:
            return False
        layers = [part for part in model.modules() if _depends_on_mode(part)]
        self._confirmed[model] = {
            "training": False,
            "since_step": step,
            "from_start": model not in self._trained,
            "layers": len(layers),
            "layers_in_training": sum(part.training for part in layers),
        }
        return True


def _depends_on_mode(module: Any) -> bool:
    """Whether a layer computes something else in evaluation mode: dropout, or statistics of batches."""
    if getattr(module, "running_mean", None) is not None:
        parameters = list(module.parameters(recurse=False))
        # A frozen layer is set to evaluation mode on purpose.
        return not parameters or any(parameter.requires_grad for parameter in parameters)
    kind = type(module).__name__.lower()
    names = ("p", "drop_prob") if "drop" in kind or "stochastic" in kind else ("dropout",)
    rates = [getattr(module, name, None) for name in names]
    return any(isinstance(rate, float) and 0 < rate < 1 for rate in rates)
