"""Puts our code into the hooks of a model and its optimizers so that nothing of it reaches the training."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

    from stepscope.guard import Guard

    Work = Callable[..., None]
    Wanted = Callable[..., bool]


class OptimizerSteps(Protocol):
    """Somebody who has hooks on the optimizers already, and passes on when they step.

    An optimizer must not get or lose hooks while it calls them, which is when a step ends.
    """

    def before_step(self, hook: Work) -> Any:
        """Calls with the optimizer; what is given back takes the hook away by `remove`."""

    def after_step(self, hook: Work) -> Any:
        """The same after it has stepped."""

    def ends_steps(self, optimizer: Any) -> bool:
        """Whether it is the one whose steps end those of the training."""


class Hooks:
    """The hooks of one watch: each failure ends in the guard, and the first one puts the watch to rest."""

    def __init__(
        self, torch: ModuleType, name: str, guard: Guard, steps: OptimizerSteps | None = None
    ) -> None:
        self._torch, self._name, self._guard, self._steps = torch, name, guard, steps
        self._handles: list[Any] = []
        # Without a GPU, asking whether one captures a graph raises.
        self._may_capture = torch.cuda.is_available()
        self.rests = False
        """Whether something has failed; from then on nothing is done."""

    def before_step(self, optimizers: Sequence[Any], work: Work, wanted: Wanted | None = None) -> None:
        """Calls with each of these optimizers before it steps; without any, with whichever steps.

        `wanted` is asked first, and must be quick: it is all that an ordinary step costs.
        """
        from torch.optim.optimizer import register_optimizer_step_pre_hook  # lazy: as torch is

        registers = [one.register_step_pre_hook for one in optimizers] or [register_optimizer_step_pre_hook]
        if self._steps is not None:
            registers = [functools.partial(_of_these, self._steps.before_step, self._steps, optimizers)]
        hook = Hook(self, _with_optimizer(work), wanted and _with_optimizer(wanted))
        self._handles += [register(hook) for register in registers]

    def after_step(self, optimizers: Sequence[Any], work: Work, wanted: Wanted | None = None) -> None:
        """The same after it has stepped."""
        from torch.optim.optimizer import register_optimizer_step_post_hook  # lazy: as torch is

        registers = [one.register_step_post_hook for one in optimizers] or [register_optimizer_step_post_hook]
        if self._steps is not None:
            registers = [functools.partial(_of_these, self._steps.after_step, self._steps, optimizers)]
        hook = Hook(self, _with_optimizer(work), wanted and _with_optimizer(wanted))
        self._handles += [register(hook) for register in registers]

    def before_forward(self, module: Any, work: Work) -> None:
        """Calls with a module and its arguments before it is called."""
        self._handles.append(module.register_forward_pre_hook(Hook(self, work)))

    def after_forward(self, module: Any, work: Work, *, with_kwargs: bool = False) -> None:
        """Calls with a module, its arguments (by name too, if asked) and its output."""
        handle = module.register_forward_hook(Hook(self, work), with_kwargs=with_kwargs)
        self._handles.append(handle)

    def remove(self) -> None:
        """Takes all of them away."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def run(self, work: Work, *arguments: Any, wanted: Wanted | None = None) -> None:
        """Does something of ours, but not while a graph is compiled or captured: it would keep that."""
        torch = self._torch
        if self.rests or torch.compiler.is_compiling():
            return
        try:
            if wanted is not None and not wanted(*arguments):
                return
            if self._may_capture and torch.cuda.is_current_stream_capturing():
                return
            with torch.no_grad():
                work(*arguments)
        except Exception as error:  # noqa: BLE001 - models are of any kind, and nothing of ours may stop a training
            self.rests = True
            self._guard.complain(self._name, f"{self._name} rests: {error!r}", error)


class Hook:
    """One of ours, as a model or optimizer holds it."""

    def __init__(self, hooks: Hooks, work: Work, wanted: Wanted | None = None) -> None:
        self._hooks, self._work, self._wanted = hooks, work, wanted

    def __call__(self, *arguments: Any) -> None:
        """Does its work, whatever comes of it."""
        self._hooks.run(self._work, *arguments, wanted=self._wanted)

    def __reduce__(self) -> tuple[Any, ...]:
        # A model saved or copied while it is looked at must not take us along: what is found in our place is
        # the one thing Python has that takes any arguments, does nothing and returns None.
        return getattr, (None, "__init__")


def _of_these(
    register: Callable[[Work], Any], steps: OptimizerSteps, optimizers: Sequence[Any], hook: Work
) -> Any:
    """Registers a hook that is called for these optimizers and one that has taken their place.

    Without any, it is called for whichever steps.
    """
    if not optimizers:
        return register(hook)

    def call(optimizer: Any) -> None:
        if any(optimizer is known for known in optimizers) or steps.ends_steps(optimizer):
            hook(optimizer)

    return register(call)


def _with_optimizer(call: Callable[..., Any]) -> Callable[..., Any]:
    return lambda optimizer, *_: call(optimizer)


def as_list(optimizer: Any) -> list[Any]:
    """One optimizer, several or none, as a list."""
    if optimizer is None:
        return []
    return list(optimizer) if isinstance(optimizer, list | tuple) else [optimizer]
