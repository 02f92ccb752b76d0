"""Hears when optimizers step."""

from __future__ import annotations

import sys
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stepscope.steps.overhead import Overhead
    from stepscope.steps.step_timer import StepTimer

    Listener = Callable[[Any], None]
    Closure = Callable[..., Any]
    Call = tuple[tuple[Any, ...], dict[str, Any]]


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

    def __init__(self, observer: OptimizerObserver, timer: StepTimer, overhead: Overhead) -> None:
        self._observer, self._timer, self._overhead = observer, timer, overhead
        self._before_steps: list[Listener] = []
        self._after_steps: list[Listener] = []
        self._register_before: list[Callable[[Any], Any]] = []
        self._before: list[Any] = []
        self._after: list[Any] = []
        self._depth = 0
        self._is_nested = self._is_wanted = False

    def add(self, optimizers: Sequence[Any]) -> None:
        """Hears of these; the last of them ends a step of the training."""
        self._timer.last_optimizer, self._timer.any_optimizer = optimizers[-1], False
        for optimizer in optimizers:
            self._after.append(optimizer.register_step_post_hook(self._timer.optimizer_stepped))
            self._register_before.append(optimizer.register_step_pre_hook)
        self._renew()

    def add_any(self) -> None:
        """Hears of whichever optimizer steps; the timer finds out which of them ends a step."""
        self._timer.any_optimizer = True
        hooks = sys.modules["torch.optim.optimizer"]
        self._after.append(hooks.register_optimizer_step_post_hook(self._timer.optimizer_stepped))
        self._register_before.append(hooks.register_optimizer_step_pre_hook)
        self._renew()

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
        self._timer.last_optimizer = self._timer.on_optimizer = None
        self._timer.any_optimizer = False

    def _renew(self) -> None:
        _remove(self._before)
        self._hear_as_needed()

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
