"""Prepares the environment of a command so that Python programs in it are watched."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.profiling.python_command import NotPython, python_command

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ATTACH_VARIABLE = "_STEPSCOPE_ATTACH"
"""Set to `quiet` where programs must not say what they watch."""

START_FOLDER = Path(__file__).parent / "start"

_IGNORES_PATH = {"I": "-I", "E": "-E", "S": "-S"}
"""Options with which Python does not read PYTHONPATH, or does not import `sitecustomize`."""


def attached(environment: Mapping[str, str], *, is_quiet: bool = False) -> dict[str, str]:
    """The environment in which every Python program waits for a training to watch."""
    path = environment.get("PYTHONPATH")
    # An empty entry would be the working directory.
    entries = [str(START_FOLDER), *([path] if path else [])]
    return {
        **environment,
        "PYTHONPATH": os.pathsep.join(entries),
        ATTACH_VARIABLE: "quiet" if is_quiet else "on",
    }


def why_not_attached(command: Sequence[str]) -> str | None:
    """Why the steps of a command cannot be recorded, if that can be known before it runs."""
    try:
        options = python_command(command).options
    except NotPython:
        return None
    for option in options:
        for letter in "" if option.startswith("--") else option[1:]:
            if letter in "WX":
                break  # what follows is its value
            if letter in _IGNORES_PATH:
                return f"python {_IGNORES_PATH[letter]} does not load stepscope"
    return None
