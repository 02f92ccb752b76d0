"""Observes gradient clipping before gradients are changed.

`torch.nn.utils.clip_grad_norm_` computes the norm of all gradients, so reading it costs nothing. The inner
function that then scales the gradients is replaced, so that it does not matter under which name a script has
imported the outer one. It is replaced only while there is a listener.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    Listener = Callable[[Any, Any, Any], None]
    """Called with the parameters to clip, the norm of their gradients, a tensor, and the norm allowed."""

_NAME = "_clip_grads_with_norm_"

_listeners: list[Listener] = []
_replaced: list[tuple[Any, Any, Any]] = []
"""The module of the function, the original and the replacement, while it is replaced."""


def add_listener(torch: ModuleType, listener: Listener) -> None:
    """Calls the listener at every gradient clipping in this process."""
    _listeners.append(listener)
    module = torch.nn.utils.clip_grad
    if not _replaced and hasattr(module, _NAME):  # torch before 2.6 does not have it
        original = getattr(module, _NAME)
        replacement = _observed(torch, original)
        setattr(module, _NAME, replacement)
        _replaced.append((module, original, replacement))


def remove_listener(listener: Listener) -> None:
    """Undoes `add_listener`; the last call restores the original function."""
    if listener in _listeners:
        _listeners.remove(listener)
    if not _listeners and _replaced:
        module, original, replacement = _replaced.pop()
        if getattr(module, _NAME) is replacement:  # else other code has wrapped it, and calls pass through
            setattr(module, _NAME, original)


def _observed(torch: ModuleType, original: Callable[..., None]) -> Callable[..., None]:
    is_compiling = torch.compiler.is_compiling

    @functools.wraps(original)
    def clip(parameters: Any, max_norm: float, total_norm: Any, *rest: Any, **options: Any) -> None:
        if not is_compiling() and isinstance(parameters, list | tuple):
            for listener in _listeners:
                listener(parameters, total_norm, max_norm)
        original(parameters, max_norm, total_norm, *rest, **options)

    return clip
