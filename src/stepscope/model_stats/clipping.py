"""Hears of gradient clipping before it happens, when the gradients are still what the loss made them.

`torch.nn.utils.clip_grad_norm_` works out the norm of all gradients; whoever clips has it for nothing. Our
function stands before the inner one that then scales them, so that it does not matter under which name a
script has imported the outer one. It is there only while somebody listens.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    Listener = Callable[[Any, Any], None]
    """Gets the parameters that are clipped and the norm of their gradients, a tensor."""

_NAME = "_clip_grads_with_norm_"

_listeners: list[Listener] = []
_replaced: list[tuple[Any, Any, Any]] = []
"""The module that holds the function, the original and ours, while ours is there."""


def listen(torch: ModuleType, listener: Listener) -> None:
    """From now on the listener hears of every clipping in this process."""
    _listeners.append(listener)
    home = torch.nn.utils.clip_grad
    if not _replaced and hasattr(home, _NAME):  # without it, torch before 2.6: nothing is heard
        original = getattr(home, _NAME)
        ours = _heard(torch, original)
        setattr(home, _NAME, ours)
        _replaced.append((home, original, ours))


def unlisten(listener: Listener) -> None:
    """Undoes `listen`; with the last listener our function goes too."""
    if listener in _listeners:
        _listeners.remove(listener)
    if not _listeners and _replaced:
        home, original, ours = _replaced.pop()
        if getattr(home, _NAME) is ours:  # else somebody stands before us, and calls pass through
            setattr(home, _NAME, original)


def _heard(torch: ModuleType, original: Callable[..., None]) -> Callable[..., None]:
    is_compiling = torch.compiler.is_compiling

    @functools.wraps(original)
    def clip(parameters: Any, max_norm: float, total_norm: Any, *rest: Any, **options: Any) -> None:
        if not is_compiling() and isinstance(parameters, list | tuple):
            for listener in _listeners:
                listener(parameters, total_norm)
        original(parameters, max_norm, total_norm, *rest, **options)

    return clip
