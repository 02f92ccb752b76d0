"""Excludes stepscope's own functions from `torch.compile`.

Wrapped functions are also called within compiled regions. There the compiler would compile them and all they
call, and recompile whenever a hook is added or removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType

Function = TypeVar("Function", bound="Callable[..., Any]")

_pending: dict[CodeType, bool] = {}
"""Code to exclude once PyTorch is loaded, and whether to exclude what it calls, too."""

_excluded: set[CodeType] = set()


def never_compiled(function: Function) -> Function:
    """Excludes a function from compilation, with all it calls."""
    _pending[function.__code__] = True
    # `torch.compiler.disable` sets this attribute, but would also slow down each call.
    function._torchdynamo_disable = True  # type: ignore[attr-defined]  # noqa: SLF001
    return function


def passes_through(function: Function) -> Function:
    """Excludes a wrapper from compilation, but not the training's function that it calls."""
    _pending[function.__code__] = False
    return function


def called_when_traced(function: Callable[[], None]) -> Callable[[], None]:
    """Has the compiler call a function once while it traces a caller; the compiled code does not call it."""
    # `torch.compiler.assume_constant_result` sets this attribute, but imports all of Dynamo, which is slow.
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]  # noqa: SLF001
    return function


def exclude_from_compilation(torch: Any) -> None:
    """Tells PyTorch to skip all functions marked so far."""
    while _pending:
        code, with_callees = _pending.popitem()
        if code not in _excluded:
            _excluded.add(code)
            _skip(torch, code, with_callees=with_callees)


def _skip(torch: Any, code: CodeType, *, with_callees: bool) -> None:
    frames = torch._C._dynamo.eval_frame  # noqa: SLF001 - there is no public way to skip a function
    if hasattr(frames, "set_code_exec_strategy"):
        skip, default = frames._FrameAction.SKIP, frames._FrameAction.DEFAULT  # noqa: SLF001
        strategy = frames._FrameExecStrategy(skip, skip if with_callees else default)  # noqa: SLF001
        frames.set_code_exec_strategy(code, strategy)
    elif hasattr(frames, "skip_code"):  # older versions cannot skip callees
        frames.skip_code(code)
