"""Runs a Python program with a profiled window in it, as `python -m stepscope.profiling.profiled_program`.

That is another process than the one of `python_command`, and it must not import more than it needs.
"""

from __future__ import annotations

import builtins
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope.profiling.window.seconds_window import SecondsWindow, WindowRequest
from stepscope.profiling.window.session import Detail

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import TracebackType
NO_SUCH_FILE = 2
"""The exit code of an interpreter that cannot open its script."""


def main(words: Sequence[str]) -> None:
    """Runs the program as the interpreter would; tracebacks do not show stepscope's own frames."""
    window = SecondsWindow(parse_request(words[0]))
    window.begin()
    try:
        run_as_main(words[1:])
    except BaseException:
        _hide_own_frames()
        raise
    finally:
        window.end()


def as_argument(request: WindowRequest) -> str:
    """Encodes a request as one command-line argument."""
    detail = request.detail
    return json.dumps(
        {
            "after_s": request.after_s,
            "length_s": request.length_s,
            "base": str(request.base),
            "top": request.top,
            "detail": {"shapes": detail.shapes, "stacks": detail.stacks, "memory": detail.memory},
        }
    )


def parse_request(argument: str) -> WindowRequest:
    """Decodes an argument of `as_argument`."""
    fields_by_name = json.loads(argument)
    detail = Detail(**fields_by_name.pop("detail"))
    return WindowRequest(base=Path(fields_by_name.pop("base")), detail=detail, **fields_by_name)


def _hide_own_frames() -> None:
    """Removes stepscope's own frames from the beginning of tracebacks."""
    show = sys.excepthook

    def show_program_frames(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        begin = _first_program_frame(trace)
        show(kind, error.with_traceback(begin), begin)

    sys.excepthook = show_program_frames


def _first_program_frame(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and _is_own_frame(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return trace


def _is_own_frame(path: str) -> bool:
    return path == __file__ or "runpy" in path


def run_as_main(words: Sequence[str]) -> None:
    """Runs `script argument ...`, `-m module argument ...` or `-c code argument ...`.

    Exceptions of the program are raised here. Its module stays `__main__` afterwards, for its threads and
    exit handlers.
    """
    if words[0] == "-c":
        _run_code(words[1], ["-c", *words[2:]])
    elif words[0] == "-m":
        _run_module(words[1], list(words[2:]))
    else:
        _run_script(words[0], list(words))


def _run_code(code: str, arguments: list[str]) -> None:
    module = _main_module()
    sys.argv = arguments
    _search_first("")
    exec(compile(code, "<string>", "exec", dont_inherit=True), vars(module))  # noqa: S102 - as python -c does


def _run_script(path: str, arguments: list[str]) -> None:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - the path stays as it was typed
            source = file.read()
    except OSError as error:
        absolute_path = os.path.abspath(path)  # noqa: PTH100 - links stay, as in the interpreter's own message
        sys.stderr.write(
            f"{sys.executable}: can't open file {absolute_path!r}: [Errno {error.errno}] {error.strerror}\n"
        )
        sys.exit(NO_SUCH_FILE)
    module = _main_module()
    module.__file__ = os.path.abspath(path)  # noqa: PTH100 - links stay, as in a module Python loads itself
    module.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
    vars(module)["__cached__"] = None
    sys.argv = arguments
    _search_first(os.path.dirname(os.path.realpath(path)))  # noqa: PTH120 - the text Python itself puts there
    exec(compile(source, module.__file__, "exec", dont_inherit=True), vars(module))  # noqa: S102 - as python script.py does


def _run_module(name: str, arguments: list[str]) -> None:
    spec = _spec_of(name)
    if spec is not None and spec.submodule_search_locations is not None:
        name = f"{name}.__main__"
        spec = _spec_of(name)
    loader = None if spec is None else spec.loader
    code = loader.get_code(name) if isinstance(loader, importlib.abc.InspectLoader) else None
    if spec is None or code is None:
        sys.exit(f"{sys.executable}: No module named {name}")
    module = _main_module()
    module.__spec__, module.__loader__ = spec, loader
    module.__file__, module.__package__ = spec.origin, spec.parent
    vars(module)["__cached__"] = spec.cached
    sys.argv = [spec.origin or name, *arguments]
    exec(code, vars(module))  # noqa: S102 - as python -m does


def _spec_of(name: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except (ImportError, AttributeError, ValueError) as error:
        sys.exit(
            f"{sys.executable}: Error while finding module specification for {name!r} "
            f"({type(error).__name__}: {error})"
        )


def _main_module() -> types.ModuleType:
    module = types.ModuleType("__main__")
    vars(module)["__builtins__"] = builtins
    sys.modules["__main__"] = module
    return module


def _search_first(folder: str) -> None:
    """Sets the first entry of the search path to the program's folder, unless safe_path is set."""
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = folder


if __name__ == "__main__":
    main(sys.argv[1:])
