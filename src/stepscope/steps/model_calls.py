"""Sees when a model is called, without putting anything into the model.

A hook inside a model would travel with it: into copies, pickles and averaged models, and into
`torch.jit.script`, which compiles hooks. So the `__call__` of the model's class is replaced instead, only
while calls are to be seen, and for all other instances of the class a call passes through.
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
    """Who wants to know of the calls of a model."""

    def call_begins(self, model: Any) -> int:
        """A model is called; what is returned is handed to `call_ends`."""

    def call_ends(self, before: int) -> None:
        """The call is over, whether it returned or raised."""


_observers: dict[int, CallObserver] = {}
"""By the id of the model, of those models whose calls are seen now."""

_replaced: dict[type, tuple[Any, Any, int]] = {}
"""Classes with our `__call__`: their own (None where it is inherited), ours, and how often it is wanted."""

_compiled: set[type] = set()
"""Classes whose calls were compiled with our `__call__`: it stays, or they would be compiled again."""

_lock = threading.Lock()


class ModelCalls:
    """The models of one observer; between `attach` and `detach` it is told of their calls."""

    def __init__(self, observer: CallObserver, is_compiling: Callable[[], bool]) -> None:
        self._observer, self._is_compiling = observer, is_compiling
        self._models: list[weakref.ref[Any]] = []
        self._looks_inside = False
        self._seen: list[tuple[type, int]] = []
        self.attached = False

    def add(self, model: Any) -> None:
        """Takes in a model; one that is gone is forgotten."""
        if not callable(model):
            raise TypeError(f"{model!r} cannot be called, so it is not a model.")
        was_attached = self.attached
        self.detach()
        self._looks_inside |= hasattr(model, "training_step")  # what Lightning calls instead
        identity = id(model)  # another model may get the same once this one is gone
        self._models.append(weakref.ref(model, lambda _: self._forget(identity)))
        if was_attached:
            self.attach()

    @property
    def models(self) -> list[Any]:
        """Those that are still there."""
        return [model for known in self._models if (model := known()) is not None]

    def parameters(self) -> set[int]:
        """The ids of their parameters."""
        with contextlib.suppress(Exception):  # a model of the user's own may raise anything
            return {id(parameter) for model in self.models for parameter in model.parameters()}
        return set()

    def look_inside(self) -> None:
        """Calls of a model's parts are to be seen as well, as nobody calls the model itself."""
        if not self._looks_inside:
            self._looks_inside = True
            if self.attached:
                self.detach()
                self.attach()

    def attach(self) -> None:
        """From now on calls are seen."""
        if self.attached:
            return
        self.attached = True
        models = self.models
        if self._looks_inside:
            models += [part for model in self.models for part in _parts(model)]
        with _lock:
            for model in models:
                _observers[id(model)] = self._observer
                _replace(type(model), self._is_compiling)
                self._seen.append((type(model), id(model)))

    def detach(self) -> None:
        """Calls are no longer seen; a class that nobody watches is as it was."""
        self.attached = False
        with _lock:
            for kind, identity in self._seen:
                self._forget(identity)
                _put_back(kind)
            self._seen.clear()

    def _forget(self, identity: int) -> None:
        if _observers.get(identity) is self._observer:
            del _observers[identity]


def _parts(model: Any) -> list[Any]:
    """What a model consists of that can be called; of a compiled one nothing, as changes compile it again."""
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
        before, ours, uses = _replaced[kind]
        _replaced[kind] = before, ours, uses + 1
        return
    ours = _seen_call(kind, own, is_compiling)
    kind.__call__ = ours
    _replaced[kind] = own, ours, 1


def _put_back(kind: Any) -> None:
    own, ours, uses = _replaced.get(kind, (None, None, 0))
    if uses > 1 or kind in _compiled:
        _replaced[kind] = own, ours, uses - 1
        return
    _replaced.pop(kind, None)
    if ours is None or vars(kind).get("__call__") is not ours:
        return  # somebody has put their own in front of ours, which passes calls through
    if own is None:
        del kind.__call__
    else:
        kind.__call__ = own


def _seen_call(kind: type, own: Any, is_compiling: Callable[[], bool]) -> Any:
    # What is inherited is looked up at every call: tracers replace it for a while.
    def inherited(self: Any, *arguments: Any, **options: Any) -> Any:
        return super(kind, self).__call__(*arguments, **options)  # type: ignore[arg-type]  # it is a class

    original = own or inherited

    @called_when_traced
    def note_compiled() -> None:
        _compiled.add(kind)

    @functools.wraps(own or kind.__call__)
    def __call__(self: Any, *arguments: Any, **options: Any) -> Any:  # noqa: N807 - it stands for that method
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
