"""Recognises the kernel of a notebook, and finds the name of the notebook that it runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import FrameType
    from typing import Any

UNKNOWN = "notebook"
"""The name of a notebook whose file is not known."""

SUFFIX = ".ipynb"

_LAUNCHER_END = "kernel_launcher"
"""The end of the names of programs that start kernels: `ipykernel_launcher`, `colab_kernel_launcher`."""


def is_kernel(words: Sequence[object] | None = None) -> bool:
    """Whether this process is the kernel of a notebook, or a worker that one has started.

    `words` are those of the command; the default is that of this process. The connection file in it is of no
    use to anybody, and many notebooks empty `sys.argv`, so that a parser of arguments does not see it.
    """
    if words is None:
        words = [*sys.orig_argv[:3], *(getattr(sys, "argv", None) or [])[:1]]
    return any(isinstance(word, str) and Path(word).stem.endswith(_LAUNCHER_END) for word in words)


def notebook_file(environment: Mapping[str, str] = os.environ) -> str | None:
    """The path of the notebook's file; None where the server does not tell it.

    Jupyter passes it in the environment, VS Code as a variable of the notebook. A console of Jupyter has a
    name of the server's own there, which is no file.
    """
    main = sys.modules.get("__main__")
    for path in (getattr(main, "__vsc_ipynb_file__", None), environment.get("JPY_SESSION_NAME")):
        if isinstance(path, str) and Path(path).suffix == SUFFIX:
            return path
    return None


def notebook_name(environment: Mapping[str, str] = os.environ) -> str:
    """The name of the notebook without folder and suffix; `notebook` if it is not known."""
    path = notebook_file(environment)
    return UNKNOWN if path is None else Path(path).stem


def notebook_command(environment: Mapping[str, str] = os.environ) -> list[str]:
    """What stands for the command of a run in a notebook: its file, without the program that starts it."""
    return [notebook_file(environment) or UNKNOWN]


def is_notebook_command(words: Sequence[object]) -> bool:
    """Whether a recorded command is that of a notebook, which no shell can start."""
    return len(words) == 1 and (words[0] == UNKNOWN or str(words[0]).endswith(SUFFIX))


def running_shell() -> Any:
    """IPython's shell that runs the cells of this process; None outside a kernel."""
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython is not None and is_kernel() else None


def is_in_cell(frame: FrameType) -> bool:
    """Whether a frame runs the code of a cell itself, or of a function that a cell has defined."""
    return is_kernel() and frame.f_globals is vars(sys.modules["__main__"])
