"""Detects optimizer steps, and the thread they happen in."""

from __future__ import annotations

import sys
import weakref
from threading import get_ident
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Protocol

from stepscope.steps.compiled_code import never_compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stepscope.steps.overhead import Overhead
    from stepscope.steps.pass_purpose import PassPurpose
    from stepscope.steps.step_timer import StepTimer

    Listener = Callable[[Any], None]
    Closure = Callable[..., Any]
    Call = tuple[tuple[Any, ...], dict[str, Any]]
    from collections.abc import Callable

MIN_STEPS = 2
"""After this many steps, all optimizers that alternate in a loop have stepped."""


class OptimizerObserver(Protocol):
    """Receives the start and end of each optimizer step."""

    def optimizer_begins(self, closure: Closure | None) -> Closure | None:
        """Called before an optimizer steps; returns a closure to use instead, or None for no change."""

    def optimizer_ends(self) -> None:
        """Called after it has stepped."""


class OptimizerSteps:
    """Registers hooks on optimizers: a permanent post-step hook, and a pre-step hook only while it is needed.

    Hooks of one kind must not be added or removed while an optimizer runs them, and a training step may end
    in the post-step hook. So the post-step hook, which belongs to the step timer, stays registered.
    """

    def __init__(
        self,
        observer: OptimizerObserver,
        timer: StepTimer,
        overhead: Overhead,
        watched_parameters: Callable[[], set[int]],
        purpose: PassPurpose,
    ) -> None:
        self._observer, self._overhead = observer, overhead
        self.timer = timer
        """Ends the training's steps."""
        self.purpose = purpose
        """What the passes over data are for."""
        self._others = OtherOptimizers(timer, watched_parameters, purpose)
        self._before_steps: list[Listener] = []
        self._after_steps: list[Listener] = []
        self._register_before: list[Callable[[Any], Any]] = []
        self._before: list[Any] = []
        self._after: list[Any] = []
        self._depth = 0
        self._is_nested = self._follows_starts = False

    def add(self, optimizers: Sequence[Any]) -> None:
        """Follows these optimizers, and any that replaces them; the last one ends a training step.

        Without any, it follows each optimizer that changes a watched model.
        """
        if optimizers:
            self._others.add_named(optimizers)
            self.timer.last_optimizer = optimizers[-1]
        for optimizer in optimizers:
            if not isinstance(optimizer, sys.modules["torch.optim"].Optimizer):
                self._add_hooks(optimizer.register_step_post_hook, optimizer.register_step_pre_hook)
        self._hook_all_optimizers()

    def _hook_all_optimizers(self) -> None:
        if self.timer.on_other is not None:
            return
        # Hooks on all optimizers: one created later may replace a watched one.
        self.timer.on_other = self._others.kind
        hooks = sys.modules["torch.optim.optimizer"]
        self._add_hooks(hooks.register_optimizer_step_post_hook, hooks.register_optimizer_step_pre_hook)

    def _add_hooks(self, after: Callable[[Any], Any], before: Callable[[Any], Any]) -> None:
        self._after.append(after(self.timer.optimizer_stepped))
        self._register_before.append(before)
        _remove(self._before)
        self._update_hooks()

    def before_step(self, listener: Listener) -> _Handle:
        """Calls the listener with each optimizer before it steps."""
        self._before_steps.append(listener)
        self._update_hooks()
        return _Handle(self._before_steps, listener, self._update_hooks)

    def after_step(self, listener: Listener) -> _Handle:
        """Calls the listener with each optimizer after it has stepped."""
        self._after_steps.append(listener)
        self._update_hooks()
        return _Handle(self._after_steps, listener, self._update_hooks)

    def follow_step_starts(self, *, enabled: bool) -> None:
        """Sets whether the observer receives the start of each optimizer step."""
        self._follows_starts = enabled
        self._update_hooks()

    def _update_hooks(self) -> None:
        is_needed = self._follows_starts or self._is_nested or bool(self._before_steps)
        if is_needed and not self._before:
            self._before = [register(self._step_begins) for register in self._register_before]
        elif not is_needed and self._before:
            _remove(self._before)
        self.timer.on_optimizer = self._step_ends if is_needed or self._after_steps else None

    def ends_steps(self, optimizer: Any) -> bool:
        """Whether the steps of this optimizer end the training's steps."""
        return self.timer.last_optimizer is optimizer

    def is_watching(self) -> bool:
        """Whether hooks are registered."""
        return bool(self._after)

    def forget_depth(self) -> None:
        """Resets the nesting depth: the post-step hook is not called for a step that raised."""
        self._depth = 0

    def close(self) -> None:
        """Removes all hooks."""
        self._is_nested = self._follows_starts = False
        self._register_before.clear()
        _remove(self._before)
        _remove(self._after)
        self.timer.last_optimizer = self.timer.on_optimizer = self.timer.on_other = None

    @never_compiled
    def _step_begins(
        self, optimizer: Any, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> Call | None:
        # An optimizer derived from another one calls its hooks again in the inner step. Then both hooks stay
        # registered from now on, or each of its steps would be counted twice.
        self._depth += 1
        if self._depth > 1:
            self._is_nested = True
            return None
        if self._before_steps:
            self._call(self._before_steps, optimizer)
        # The first argument is the optimizer itself.
        is_option = len(arguments) < 2
        closure = options.get("closure") if is_option else arguments[1]
        replacement = self._observer.optimizer_begins(closure if callable(closure) else None)
        if replacement is None:
            return None
        return (
            (arguments, {**options, "closure": replacement})
            if is_option
            else ((arguments[0], replacement, *arguments[2:]), options)
        )

    @never_compiled
    def _step_ends(self, optimizer: Any) -> None:
        self._depth -= 1
        if self._depth > 0:
            return
        self._depth = 0
        self._observer.optimizer_ends()
        if self._after_steps:
            self._call(self._after_steps, optimizer)
        if self.timer.ends_step(optimizer):
            self.timer.make_step()

    def _call(self, listeners: list[Listener], optimizer: Any) -> None:
        began_ns = monotonic_ns()
        for listener in tuple(listeners):
            listener(optimizer)
        self._overhead.spend(monotonic_ns() - began_ns)


class OtherOptimizers:
    """Decides whether an optimizer other than the last one ends training steps."""

    def __init__(
        self, timer: StepTimer, watched_parameters: Callable[[], set[int]], purpose: PassPurpose
    ) -> None:
        self._timer, self._watched_parameters, self._purpose = timer, watched_parameters, purpose
        self._named: weakref.WeakSet[Any] = weakref.WeakSet()
        self._trains: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()
        """Whether an optimizer changes parameters of a watched model."""
        self._new_optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        """Optimizers whose first step came after steps of others."""

    def add_named(self, optimizers: Sequence[Any]) -> None:
        """Adds optimizers that the user has passed with the watched models."""
        self._named.update(optimizers)

    @never_compiled
    def kind(self, optimizer: Any) -> int:
        """0: it ends no steps; 1: it does from now on; 2: it does once the last one has stopped stepping."""
        try:
            return self._kind(optimizer)
        except Exception:  # noqa: BLE001 - an optimizer of the user's own may raise anything
            return 0

    def _kind(self, optimizer: Any) -> int:
        last = self._timer.last_optimizer
        if optimizer in self._named and last in self._named:
            self._purpose.has_optimizers = True
            return 0  # the last of those that were named ends steps
        trains = self._trains.get(optimizer)
        if trains is None:
            watched = self._watched_parameters()
            trains = self._trains[optimizer] = not watched.isdisjoint(_parameters(optimizer))
            if self._timer.steps_made >= MIN_STEPS:
                self._new_optimizers.add(optimizer)
        if last is None:
            # An optimizer of parameter copies that are written back trains the model, too.
            return int(trains or (not any(self._trains.values()) and self._purpose.has_changed()))
        if not trains:
            return 0
        # An optimizer created later for the same parameters replaces the one before it.
        is_next = optimizer in self._new_optimizers and not _parameters(last).isdisjoint(
            _parameters(optimizer)
        )
        return 1 if is_next or not self._trains.get(last, True) else 2


def _parameters(optimizer: Any) -> set[int]:
    return {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}


class _Handle:
    """Removes a listener; safe while the list is being iterated."""

    def __init__(self, listeners: list[Listener], listener: Listener, then: Callable[[], None]) -> None:
        self._listeners, self._listener, self._then = listeners, listener, then

    def remove(self) -> None:
        """Removes the listener."""
        if self._listener in self._listeners:
            self._listeners.remove(self._listener)
            self._then()


def _remove(handles: list[Any]) -> None:
    while handles:
        handles.pop().remove()


class TrainingThread:
    """The thread that trains: the one that called `watch`, until an optimizer steps in another one."""

    def __init__(self, optimizers: OptimizerSteps, timer: StepTimer, on_move: Callable[[], None]) -> None:
        self._timer, self._on_move = timer, on_move
        self.identifier = get_ident()
        self._first_step = optimizers.after_step(self._follow)

    def is_current(self) -> bool:
        """Whether the calling thread is the training thread."""
        return get_ident() == self.identifier

    def _follow(self, optimizer: Any) -> None:
        if self._timer.last_optimizer not in (None, optimizer):
            return
        self._first_step.remove()
        self.move()

    def move(self) -> None:
        """Makes the calling thread the training thread."""
        if not self.is_current():
            self.identifier = get_ident()
            self._on_move()
