"""Hears when optimizers step."""

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
"""Optimizers of one loop that take turns have all stepped by then."""


class OptimizerObserver(Protocol):
    """Who wants to know when optimizers step."""

    def optimizer_begins(self, closure: Closure | None) -> Closure | None:
        """An optimizer is about to step, with a closure or without; gives the one to call in its place."""

    def optimizer_ends(self) -> None:
        """It has stepped."""


class OptimizerSteps:
    """Hooks on optimizers: after each step always, before it only while somebody wants to know.

    An optimizer must not get or lose hooks of a kind while it calls those, and a training step may end in the
    hook after the optimizer step. So that one, which is the step timer's, stays, and the one before comes and
    goes.
    """

    def __init__(
        self,
        observer: OptimizerObserver,
        timer: StepTimer,
        overhead: Overhead,
        watched_parameters: Callable[[], set[int]],
        purpose: PassPurpose,
    ) -> None:
        self._observer, self._timer, self._overhead = observer, timer, overhead
        self._others = OtherOptimizers(timer, watched_parameters, purpose)
        self._before_steps: list[Listener] = []
        self._after_steps: list[Listener] = []
        self._register_before: list[Callable[[Any], Any]] = []
        self._before: list[Any] = []
        self._after: list[Any] = []
        self._depth = 0
        self._is_nested = self._is_wanted = False

    def add(self, optimizers: Sequence[Any]) -> None:
        """Hears of these, the last of which ends a step of the training, and of one that takes their place.

        Without any, it hears of whichever changes a watched model.
        """
        if optimizers:
            self._others.name(optimizers)
            self._timer.last_optimizer = optimizers[-1]
        for optimizer in optimizers:
            if not isinstance(optimizer, sys.modules["torch.optim"].Optimizer):
                self._add_hooks(optimizer.register_step_post_hook, optimizer.register_step_pre_hook)
        self._hear()

    def _hear(self) -> None:
        if self._timer.on_other is not None:
            return
        # Hooks on all optimizers: one that is made later may take the place of one that is watched.
        self._timer.on_other = self._others.kind
        hooks = sys.modules["torch.optim.optimizer"]
        self._add_hooks(hooks.register_optimizer_step_post_hook, hooks.register_optimizer_step_pre_hook)

    def _add_hooks(self, after: Callable[[Any], Any], before: Callable[[Any], Any]) -> None:
        self._after.append(after(self._timer.optimizer_stepped))
        self._register_before.append(before)
        _remove(self._before)
        self._hear_as_needed()

    def before_step(self, listener: Listener) -> _Handle:
        """Calls with each optimizer that is about to step."""
        self._before_steps.append(listener)
        self._hear_as_needed()
        return _Handle(self._before_steps, listener, self._hear_as_needed)

    def after_step(self, listener: Listener) -> _Handle:
        """The same after it has stepped."""
        self._after_steps.append(listener)
        self._hear_as_needed()
        return _Handle(self._after_steps, listener, self._hear_as_needed)

    def hear_beginnings(self, *, wanted: bool) -> None:
        """Whether the observer has to hear when an optimizer begins to step."""
        self._is_wanted = wanted
        self._hear_as_needed()

    def _hear_as_needed(self) -> None:
        is_needed = self._is_wanted or self._is_nested or bool(self._before_steps)
        if is_needed and not self._before:
            self._before = [register(self._step_begins) for register in self._register_before]
        elif not is_needed and self._before:
            _remove(self._before)
        self._timer.on_optimizer = self._step_ends if is_needed or self._after_steps else None

    def ends_steps(self, optimizer: Any) -> bool:
        """Whether it is the one whose steps end those of the training."""
        return self._timer.last_optimizer is optimizer

    def is_watching(self) -> bool:
        """Whether there are hooks."""
        return bool(self._after)

    def forget_depth(self) -> None:
        """A step that raised never said that it ended."""
        self._depth = 0

    def close(self) -> None:
        """Takes all hooks away."""
        self._is_nested = self._is_wanted = False
        self._register_before.clear()
        _remove(self._before)
        _remove(self._after)
        self._timer.last_optimizer = self._timer.on_optimizer = self._timer.on_other = None

    @never_compiled
    def _step_begins(
        self, optimizer: Any, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> Call | None:
        # One that is derived from another has its hooks called again by the step of that one. It is then
        # followed from beginning to end for good, or each of its steps would be counted twice.
        self._depth += 1
        if self._depth > 1:
            self._is_nested = True
            return None
        if self._before_steps:
            self._call(self._before_steps, optimizer)
        # The first argument is the optimizer itself.
        is_option = len(arguments) < 2
        closure = options.get("closure") if is_option else arguments[1]
        ours = self._observer.optimizer_begins(closure if callable(closure) else None)
        if ours is None:
            return None
        return (
            (arguments, {**options, "closure": ours})
            if is_option
            else ((arguments[0], ours, *arguments[2:]), options)
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
        if self._timer.ends_step(optimizer):
            self._timer.make_step()

    def _call(self, listeners: list[Listener], optimizer: Any) -> None:
        began_ns = monotonic_ns()
        for listener in tuple(listeners):
            listener(optimizer)
        self._overhead.spend(monotonic_ns() - began_ns)


class OtherOptimizers:
    """Tells what the step of an optimizer is that is not the one which ended the last step."""

    def __init__(
        self, timer: StepTimer, watched_parameters: Callable[[], set[int]], purpose: PassPurpose
    ) -> None:
        self._timer, self._watched_parameters, self._purpose = timer, watched_parameters, purpose
        self._named: weakref.WeakSet[Any] = weakref.WeakSet()
        self._trains: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()
        """Whether an optimizer changes parameters of a watched model."""
        self._late: weakref.WeakSet[Any] = weakref.WeakSet()
        """Those that first stepped when others had made steps already."""

    def name(self, optimizers: Sequence[Any]) -> None:
        """Somebody has said that these train the watched models."""
        self._named.update(optimizers)

    @never_compiled
    def kind(self, optimizer: Any) -> int:
        """0: it ends no steps, 1: it does from now on, 2: once the last one has not stepped for a while."""
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
                self._late.add(optimizer)
        if last is None:
            # One whose parameters are copies that somebody writes back trains a model too.
            return int(trains or (not any(self._trains.values()) and self._purpose.has_changed()))
        if not trains:
            return 0
        # One that is made later for the same parameters takes the place of the one before it.
        is_next = optimizer in self._late and not _parameters(last).isdisjoint(_parameters(optimizer))
        return 1 if is_next or not self._trains.get(last, True) else 2


def _parameters(optimizer: Any) -> set[int]:
    return {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}


class _Handle:
    """Takes a listener away from a list that may just be gone through."""

    def __init__(self, listeners: list[Listener], listener: Listener, then: Callable[[], None]) -> None:
        self._listeners, self._listener, self._then = listeners, listener, then

    def remove(self) -> None:
        """Takes it away."""
        if self._listener in self._listeners:
            self._listeners.remove(self._listener)
            self._then()


def _remove(handles: list[Any]) -> None:
    while handles:
        handles.pop().remove()


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
