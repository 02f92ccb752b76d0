"""Parses a command that runs a Python program, and builds the one that runs it with a profiled window."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.errors import StepscopeError
from stepscope.profiling.profiled_program import as_argument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepscope.profiling.window.seconds_window import WindowRequest

PROGRAM_MODULE = "stepscope.profiling.profiled_program"
EXPECTED = "expected: python train.py ..., python -m package.train ... or python -c code"

_INTERPRETER = re.compile(r"python[\d.]*t?$")
_TAKES_VALUE = "WX"
_TAKES_PROGRAM = "cm"


class NotPython(StepscopeError):
    """A command that does not run a Python program, and so cannot be profiled."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}; {EXPECTED}.")


@dataclass(frozen=True)
class PythonCommand:
    """An interpreter, its options, and the program with its arguments."""

    interpreter: str
    options: tuple[str, ...]
    program: tuple[str, ...]

    @property
    def name(self) -> str:
        """A name for it: that of its script or module."""
        if self.program[0] == "-c":
            return "code"
        return self.program[1].rpartition(".")[2] if self.program[0] == "-m" else Path(self.program[0]).stem

    def with_window(self, request: WindowRequest) -> list[str]:
        """The command that runs the same program with a profiled window."""
        return [self.interpreter, *self.options, "-m", PROGRAM_MODULE, as_argument(request), *self.program]

    def check(self) -> None:
        """Raises StepscopeError if its interpreter cannot import stepscope."""
        path = shutil.which(self.interpreter)
        if path is not None and Path(path).absolute().parent == Path(sys.executable).parent:
            return
        probe = subprocess.run(
            [self.interpreter, *self.options, "-c", f"import {PROGRAM_MODULE}"],
            capture_output=True,
            check=False,
        )
        if probe.returncode != 0:
            raise StepscopeError(
                f"{path or self.interpreter} cannot import stepscope, which profiles the program. "
                f"Install it there: {self.interpreter} -m pip install 'stepscope[torch]'"
            )


def python_command(words: Sequence[str]) -> PythonCommand:
    """Parses a command; raises NotPython for any other kind of command."""
    interpreter = words[0]
    if not _INTERPRETER.match(Path(interpreter).name):
        raise NotPython(f"{interpreter} is not a Python interpreter")
    index = 1
    while index < len(words):
        word = words[index]
        if word == "-" or word.startswith("--"):
            break
        if not word.startswith("-"):
            return PythonCommand(interpreter, tuple(words[1:index]), tuple(words[index:]))
        letters, value = _split(word)
        if letters[-1] in _TAKES_PROGRAM:
            return _with_flag(words, index, letters, value)
        index += 2 if letters[-1] in _TAKES_VALUE and not value else 1
    raise NotPython(
        "The command has no program" if index >= len(words) else f"{words[index]} is not a program"
    )


def _split(word: str) -> tuple[str, str]:
    """The letters of an option up to one that takes a value, and the value if it is attached."""
    for index, letter in enumerate(word[1:], start=1):
        if letter in _TAKES_VALUE + _TAKES_PROGRAM:
            return word[1 : index + 1], word[index + 1 :]
    return word[1:], ""


def _with_flag(words: Sequence[str], index: int, letters: str, value: str) -> PythonCommand:
    """A command with its program after -m or -c, alone or combined with other letters."""
    rest = list(words[index + 1 :])
    if not value and not rest:
        raise NotPython(f"-{letters[-1]} is followed by nothing")
    target = value or rest.pop(0)
    before = (f"-{letters[:-1]}",) if len(letters) > 1 else ()
    return PythonCommand(words[0], (*words[1:index], *before), (f"-{letters[-1]}", target, *rest))
