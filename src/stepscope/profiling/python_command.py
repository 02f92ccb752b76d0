"""Recognises a command that runs a Python program, and has it run with a profiled window."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.errors import StepscopeError
from stepscope.profiling.inside import as_argument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepscope.profiling.window.seconds_window import Wanted

INSIDE = "stepscope.profiling.inside"
EXPECTED = "expected: python train.py ..., python -m package.train ... or python -c code"

_INTERPRETER = re.compile(r"python[\d.]*t?$")
_TAKES_VALUE = "WX"
_TAKES_PROGRAM = "cm"


class NotPython(StepscopeError):
    """A command whose inside cannot be profiled."""

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
        """What to call it: after its script or module."""
        if self.program[0] == "-c":
            return "code"
        return self.program[1].rpartition(".")[2] if self.program[0] == "-m" else Path(self.program[0]).stem

    def with_window(self, wanted: Wanted) -> list[str]:
        """The command that runs the same program with a window in it."""
        return [self.interpreter, *self.options, "-m", INSIDE, as_argument(wanted), *self.program]

    def check(self) -> None:
        """Raises StepscopeError where its interpreter has no stepscope; ours has."""
        path = shutil.which(self.interpreter)
        if path is not None and Path(path).absolute().parent == Path(sys.executable).parent:
            return
        asked = subprocess.run(
            [self.interpreter, *self.options, "-c", f"import {INSIDE}"], capture_output=True, check=False
        )
        if asked.returncode != 0:
            raise StepscopeError(
                f"{path or self.interpreter} cannot import stepscope, which the program is run with. "
                f"Install it there: {self.interpreter} -m pip install 'stepscope[torch]'"
            )


def python_command(words: Sequence[str]) -> PythonCommand:
    """Takes a command apart; raises NotPython where it is another kind of command."""
    interpreter = words[0]
    if not _INTERPRETER.match(Path(interpreter).name):
        raise NotPython(f"{interpreter} is not a Python interpreter")
    place = 1
    while place < len(words):
        word = words[place]
        if word == "-" or word.startswith("--"):
            break
        if not word.startswith("-"):
            return PythonCommand(interpreter, tuple(words[1:place]), tuple(words[place:]))
        letters, value = _split(word)
        if letters[-1] in _TAKES_PROGRAM:
            return _with_flag(words, place, letters, value)
        place += 2 if letters[-1] in _TAKES_VALUE and not value else 1
    raise NotPython(
        "The command names no program" if place >= len(words) else f"{words[place]} is no program"
    )


def _split(word: str) -> tuple[str, str]:
    """The letters of an option word up to one that takes a value, and the value if it is glued to it."""
    for place, letter in enumerate(word[1:], start=1):
        if letter in _TAKES_VALUE + _TAKES_PROGRAM:
            return word[1 : place + 1], word[place + 1 :]
    return word[1:], ""


def _with_flag(words: Sequence[str], place: int, letters: str, value: str) -> PythonCommand:
    """A command whose program is given by -m or -c, alone or behind other letters."""
    rest = list(words[place + 1 :])
    if not value and not rest:
        raise NotPython(f"-{letters[-1]} is followed by nothing")
    target = value or rest.pop(0)
    before = (f"-{letters[:-1]}",) if len(letters) > 1 else ()
    return PythonCommand(words[0], (*words[1:place], *before), (f"-{letters[-1]}", target, *rest))
