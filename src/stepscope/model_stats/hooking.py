"""Runs code in the hooks of a model and its optimizers so that its failures do not reach the training."""

from __future__ import annotations

import functools
import weakref
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

    from stepscope.guard import Guard

    Work = Callable[..., None]
    IsDue = Callable[..., bool]


class OptimizerSteps(Protocol):
    """Calls listeners when optimizers step, through hooks that are already registered.

    Hooks must not be added to or removed from an optimizer while it runs them, which is when a step ends.
    """

    def before_step(self, hook: Work) -> Any:
        """Calls the hook with each optimizer before it steps; `remove` of the result removes the hook."""

    def after_step(self, hook: Work) -> Any:
        """Calls the hook with each optimizer after it has stepped."""

    def ends_steps(self, optimizer: Any) -> bool:
        """Whether the steps of this optimizer end the training's steps."""


class Hooks:
    """The hooks of one watcher: failures go to the guard, and the first one switches the watcher off."""

    def __init__(
        self, torch: ModuleType, name: str, guard: Guard, steps: OptimizerSteps | None = None
    ) -> None:
        self._torch, self._name, self._guard, self._steps = torch, name, guard, steps
        self._handles: list[Any] = []
        # Without a GPU, checking for a graph capture raises.
        self._may_capture = torch.cuda.is_available()
        self.is_off = False
        """Whether a hook has failed; then no hook does anything."""

    def before_step(self, optimizers: Sequence[Any], work: Work, is_due: IsDue | None = None) -> None:
        """Calls `work` with each of these optimizers before it steps; with any optimizer if there are none.

        `is_due` is called first, and must be quick: it is the only cost of an ordinary step.
        """
        from torch.optim.optimizer import register_optimizer_step_pre_hook  # lazy: as torch is

        registers = [optimizer.register_step_pre_hook for optimizer in optimizers]
        registers = registers or [register_optimizer_step_pre_hook]
        if self._steps is not None:
            registers = [functools.partial(_register_for, self._steps.before_step, self._steps, optimizers)]
        hook = Hook(self, _with_optimizer(work), is_due and _with_optimizer(is_due))
        self._handles += [register(hook) for register in registers]

    def after_step(self, optimizers: Sequence[Any], work: Work, is_due: IsDue | None = None) -> None:
        """Calls `work` after the optimizer has stepped, in the same way."""
        from torch.optim.optimizer import register_optimizer_step_post_hook  # lazy: as torch is

        registers = [optimizer.register_step_post_hook for optimizer in optimizers]
        registers = registers or [register_optimizer_step_post_hook]
        if self._steps is not None:
            registers = [functools.partial(_register_for, self._steps.after_step, self._steps, optimizers)]
        hook = Hook(self, _with_optimizer(work), is_due and _with_optimizer(is_due))
        self._handles += [register(hook) for register in registers]

    def before_forward(self, module: Any, work: Work) -> None:
        """Calls `work` with a module and its arguments before its forward pass."""
        self._handles.append(module.register_forward_pre_hook(Hook(self, work)))

    def after_forward(self, module: Any, work: Work, *, with_kwargs: bool = False) -> None:
        """Calls `work` with a module, its arguments (keyword arguments, too, if asked) and its output."""
        handle = module.register_forward_hook(Hook(self, work), with_kwargs=with_kwargs)
        self._handles.append(handle)

    def remove(self) -> None:
        """Removes all hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def run(self, work: Work, *arguments: Any, is_due: IsDue | None = None) -> None:
        """Calls `work`, but not while a graph is compiled or captured: it would become part of the graph."""
        torch = self._torch
        if self.is_off or torch.compiler.is_compiling():
            return
        try:
            if is_due is not None and not is_due(*arguments):
                return
            if self._may_capture and torch.cuda.is_current_stream_capturing():
                return
            with torch.no_grad():
                work(*arguments)
        except Exception as error:  # noqa: BLE001 - a failure of stepscope must not stop the training
            self.is_off = True
            self._guard.complain(self._name, f"{self._name} is switched off: {error!r}", error)


class Hook:
    """A hook as it is registered with a model or optimizer."""

    def __init__(self, hooks: Hooks, work: Work, is_due: IsDue | None = None) -> None:
        self._hooks, self._work, self._is_due = hooks, work, is_due

    def __call__(self, *arguments: Any) -> None:
        """Calls its work; failures are handled by `Hooks`."""
        self._hooks.run(self._work, *arguments, is_due=self._is_due)

    def __reduce__(self) -> tuple[Any, ...]:
        # A model that is saved or copied while hooks are registered must not contain them. The replacement is
        # a builtin that takes any arguments, does nothing and returns None.
        return getattr, (None, "__init__")


def _register_for(
    register: Callable[[Work], Any], steps: OptimizerSteps, optimizers: Sequence[Any], hook: Work
) -> Any:
    """Registers a hook that is called for these optimizers and for one that has replaced them.

    Without any, it is called for each optimizer that steps.
    """
    if not optimizers:
        return register(hook)
    listed = ListedOptimizers(optimizers)

    def call(optimizer: Any) -> None:
        if optimizer in listed or steps.ends_steps(optimizer):
            hook(optimizer)

    return register(call)


def _with_optimizer(call: Callable[..., Any]) -> Callable[..., Any]:
    return lambda optimizer, *_: call(optimizer)


def reference_to(model: Any, on_deleted: Callable[[], None] | None) -> Callable[[], Any]:
    """A function that returns the model; None once the training has deleted it, when `on_deleted` is called.

    Without `on_deleted` the model is kept. A watcher must not keep it: a program may train many models one
    after another, and delete each to free its memory.
    """
    if on_deleted is None:
        return lambda: model
    return weakref.ref(model, lambda _: on_deleted())


class ListedOptimizers:
    """The optimizers that the user has named for a model, as long as they exist."""

    def __init__(self, optimizers: Sequence[Any]) -> None:
        self._references = [weakref.ref(optimizer) for optimizer in optimizers]

    def existing(self) -> list[Any]:
        """Those that exist."""
        return [optimizer for reference in self._references if (optimizer := reference()) is not None]

    def __contains__(self, optimizer: object) -> bool:
        return any(optimizer is reference() for reference in self._references)


def as_list(optimizer: Any) -> list[Any]:
    """One optimizer, several or none, as a list."""
    if optimizer is None:
        return []
    return list(optimizer) if isinstance(optimizer, list | tuple) else [optimizer]
