"""Observes calls of a model without adding hooks to it.

A hook would be copied with the model, into pickles and averaged models, and `torch.jit.script` would compile
it. Instead, the `__call__` of the model's class is replaced while calls are observed; calls of other
instances of the class pass through.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from typing import TYPE_CHECKING, Any, Protocol

from stepscope.steps.compiled_code import called_when_traced

if TYPE_CHECKING:
    from collections.abc import Callable


class CallObserver(Protocol):
    """Receives the calls of a model."""

    def call_begins(self, model: Any) -> int:
        """Called before the model runs; the result is passed to `call_ends`."""

    def call_ends(self, before: int) -> None:
        """Called after the model has returned or raised."""


_observers: dict[int, CallObserver] = {}
"""The observer of each model whose calls are observed now, by the id of the model."""

_replaced: dict[type, tuple[Any, Any, int]] = {}
"""Classes with a replaced `__call__`: the original (None if inherited), the replacement, and its users."""

_compiled: set[type] = set()
"""Classes whose calls were compiled with the replacement: removing it would recompile them, so it stays."""

_lock = threading.Lock()


class ModelCalls:
    """The models of one observer, which receives their calls between `attach` and `detach`."""

    def __init__(self, observer: CallObserver, is_compiling: Callable[[], bool]) -> None:
        self._observer, self._is_compiling = observer, is_compiling
        self._models: list[weakref.ref[Any]] = []
        self._includes_parts = False
        self._patched: list[tuple[type, int]] = []
        self.attached = False

    def add(self, model: Any) -> None:
        """Adds a model; only a weak reference is kept."""
        if not callable(model):
            raise TypeError(f"{model!r} cannot be called, so it is not a model.")
        was_attached = self.attached
        self.detach()
        self._includes_parts |= hasattr(model, "training_step")  # Lightning calls this instead of the model
        identity = id(model)  # another model may get the same id once this one is deleted
        self._models.append(weakref.ref(model, lambda _: self._forget(identity)))
        if was_attached:
            self.attach()

    @property
    def models(self) -> list[Any]:
        """The models that still exist."""
        return [model for reference in self._models if (model := reference()) is not None]

    def parameters(self) -> set[int]:
        """The ids of all parameters of the models."""
        with contextlib.suppress(Exception):  # a model of the user's own may raise anything
            return {id(parameter) for model in self.models for parameter in model.parameters()}
        return set()

    def include_parts(self) -> None:
        """Observes calls of a model's submodules, too: the loop does not call the model itself."""
        if not self._includes_parts:
            self._includes_parts = True
            if self.attached:
                self.detach()
                self.attach()

    def attach(self) -> None:
        """Starts observing calls."""
        if self.attached:
            return
        self.attached = True
        models = self.models
        if self._includes_parts:
            models += [part for model in self.models for part in _parts(model)]
        with _lock:
            for model in models:
                _observers[id(model)] = self._observer
                _replace(type(model), self._is_compiling)
                self._patched.append((type(model), id(model)))

    def detach(self) -> None:
        """Stops observing calls, and restores classes that no other observer uses."""
        self.attached = False
        with _lock:
            for kind, identity in self._patched:
                self._forget(identity)
                _put_back(kind)
            self._patched.clear()

    def _forget(self, identity: int) -> None:
        observers = _observers  # None while the interpreter shuts down
        if observers is not None and observers.get(identity) is self._observer:
            del observers[identity]


def _parts(model: Any) -> list[Any]:
    """The callable submodules of a model; none for a compiled one, which a change would recompile."""
    if hasattr(model, "_orig_mod") or not hasattr(model, "children"):
        return []
    return [
        part for child in model.children() for part in (_parts(child) if _is_container(child) else [child])
    ]


def _is_container(module: Any) -> bool:
    return getattr(type(module).forward, "__name__", "") == "_forward_unimplemented"


def _replace(kind: Any, is_compiling: Callable[[], bool]) -> None:
    own = vars(kind).get("__call__")
    if kind in _replaced and own is _replaced[kind][1]:
        before, replacement, uses = _replaced[kind]
        _replaced[kind] = before, replacement, uses + 1
        return
    replacement = _observed_call(kind, own, is_compiling)
    kind.__call__ = replacement
    _replaced[kind] = own, replacement, 1


def _put_back(kind: Any) -> None:
    own, replacement, uses = _replaced.get(kind, (None, None, 0))
    if uses > 1 or kind in _compiled:
        _replaced[kind] = own, replacement, uses - 1
        return
    _replaced.pop(kind, None)
    if replacement is None or vars(kind).get("__call__") is not replacement:
        return  # other code has wrapped the replacement, which stays and passes calls through
    if own is None:
        del kind.__call__
    else:
        kind.__call__ = own


def _observed_call(kind: type, own: Any, is_compiling: Callable[[], bool]) -> Any:
    # An inherited method is looked up at every call: tracers replace it temporarily.
    def inherited(self: Any, *arguments: Any, **options: Any) -> Any:
        return super(kind, self).__call__(*arguments, **options)  # type: ignore[arg-type]  # it is a class

    original = own or inherited

    @called_when_traced
    def note_compiled() -> None:
        _compiled.add(kind)

    @functools.wraps(own or kind.__call__)
    def __call__(self: Any, *arguments: Any, **options: Any) -> Any:  # noqa: N807 - it replaces that method
        if is_compiling():
            note_compiled()
            return original(self, *arguments, **options)
        observer = _observers.get(id(self))
        if observer is None:
            return original(self, *arguments, **options)
        before = observer.call_begins(self)
        try:
            return original(self, *arguments, **options)
        finally:
            observer.call_ends(before)

    return __call__
