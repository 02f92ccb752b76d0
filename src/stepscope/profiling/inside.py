"""Runs a Python program with a profiled window in it, as `python -m stepscope.profiling.inside`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope.profiling import main_module
from stepscope.profiling.window.seconds_window import SecondsWindow, Wanted
from stepscope.profiling.window.session import Detail

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

_OWN_FILES = (__file__, main_module.__file__)


def main(words: Sequence[str]) -> None:
    """Runs the program as its interpreter would; what it raises is shown as if we were not here."""
    window = SecondsWindow(wanted_from(words[0]))
    window.begin()
    try:
        main_module.run_as_main(words[1:])
    except BaseException:
        _hide_own_frames()
        raise
    finally:
        window.end()


def as_argument(wanted: Wanted) -> str:
    """What is wanted, as one argument of a command."""
    detail = wanted.detail
    return json.dumps(
        {
            "after_s": wanted.after_s,
            "length_s": wanted.length_s,
            "base": str(wanted.base),
            "top": wanted.top,
            "detail": {"shapes": detail.shapes, "stacks": detail.stacks, "memory": detail.memory},
        }
    )


def wanted_from(argument: str) -> Wanted:
    """Reads what `as_argument` wrote."""
    given = json.loads(argument)
    detail = Detail(**given.pop("detail"))
    return Wanted(base=Path(given.pop("base")), detail=detail, **given)


def _hide_own_frames() -> None:
    """Has the traceback begin where the program begins, whoever prints it."""
    show = sys.excepthook

    def show_without_ours(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        begin = _first_of_program(trace)
        show(kind, error.with_traceback(begin), begin)

    sys.excepthook = show_without_ours


def _first_of_program(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and _is_ours(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return trace


def _is_ours(path: str) -> bool:
    return path in _OWN_FILES or "runpy" in path


if __name__ == "__main__":
    main(sys.argv[1:])
