"""Keeps `torch.compile` away from our own functions.

What we put around a training is also called within regions that are compiled. There it would be compiled as
well, with all it calls, and again whenever a hook of ours comes or goes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType

Function = TypeVar("Function", bound="Callable[..., Any]")

_waiting: dict[CodeType, bool] = {}
"""Code that is to be left alone once PyTorch is there, and whether that holds for all it calls."""

_left_alone: set[CodeType] = set()


def never_compiled(function: Function) -> Function:
    """Marks a function of ours that is left alone with all it calls."""
    _waiting[function.__code__] = True
    # What `torch.compiler.disable` sets, which would also slow down each call.
    function._torchdynamo_disable = True  # type: ignore[attr-defined]  # noqa: SLF001
    return function


def passes_through(function: Function) -> Function:
    """Marks a function of ours that is left alone, but not the function of the training that it calls."""
    _waiting[function.__code__] = False
    return function


def called_when_traced(note: Callable[[], None]) -> Callable[[], None]:
    """The same function, called while code is compiled that calls it, and not by what was compiled."""
    # What `torch.compiler.assume_constant_result` sets, which would import all of Dynamo and take long.
    note._dynamo_marked_constant = True  # type: ignore[attr-defined]  # noqa: SLF001
    return note


def leave_us_alone(torch: Any) -> None:
    """Has PyTorch compile nothing that is marked."""
    while _waiting:
        code, with_callees = _waiting.popitem()
        if code not in _left_alone:
            _left_alone.add(code)
            _skip(torch, code, with_callees=with_callees)


def _skip(torch: Any, code: CodeType, *, with_callees: bool) -> None:
    frames = torch._C._dynamo.eval_frame  # noqa: SLF001 - nothing public leaves a function as it is
    if hasattr(frames, "set_code_exec_strategy"):
        skip, default = frames._FrameAction.SKIP, frames._FrameAction.DEFAULT  # noqa: SLF001
        strategy = frames._FrameExecStrategy(skip, skip if with_callees else default)  # noqa: SLF001
        frames.set_code_exec_strategy(code, strategy)
    elif hasattr(frames, "skip_code"):  # of older versions, which do not know about callees
        frames.skip_code(code)
