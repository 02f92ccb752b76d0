"""A command line: the name of its run, whether it can be started, how it ended."""

from __future__ import annotations

import shutil
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.errors import StepscopeError

if TYPE_CHECKING:
    from collections.abc import Sequence

NOT_EXECUTABLE, NOT_FOUND = 126, 127

_SCRIPTS = (".py", ".sh", ".ipynb")


class CannotStart(StepscopeError):
    """A command cannot be started; the exit code is the one a shell would give."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


CRASHES = (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)
"""Signals that count as a crash: faults, and SIGKILL. A monitor classifies them in the same way."""


@dataclass(frozen=True)
class Ending:
    """How a command ended: its exit code, and the status and reason of its run."""

    exit_code: int
    status: str
    reason: str


def run_name_of(command: Sequence[str]) -> str:
    """The default name of the command's run: from its script, else its module, else the program."""
    for word in command:
        if word.endswith(_SCRIPTS):
            return Path(word).stem
    if "-m" in command[1:-1]:
        return command[command.index("-m") + 1].rpartition(".")[2]
    return Path(command[0]).stem


def check(command: Sequence[str]) -> None:
    """Raises CannotStart for a command that does not exist or is not executable."""
    program = command[0]
    if shutil.which(program) is not None:
        return
    if not Path(program).exists():
        raise CannotStart(f"There is no command {program!r}.", NOT_FOUND)
    if "/" not in program:
        raise CannotStart(
            f"There is no command {program!r}; to run the file in this folder, use ./{program}", NOT_FOUND
        )
    raise CannotStart(
        f"{program} is not executable. Name its interpreter, or allow it with: chmod +x {program}",
        NOT_EXECUTABLE,
    )


def ending_of(return_code: int, exception: str | None = None) -> Ending:
    """Interprets a return code of `subprocess`, which is negative for a signal.

    An exception that the command has printed is a better reason than its exit code.
    """
    if return_code == 0:
        return Ending(0, "finished", "")
    if return_code > 0:
        return Ending(return_code, "failed", _reason(return_code, exception))
    status = "crashed" if -return_code in CRASHES else "failed"
    return Ending(128 - return_code, status, f"killed by {_signal_name(-return_code)}")


def _reason(return_code: int, exception: str | None) -> str:
    if exception is None:
        return f"exit code {return_code}"
    # Python exits with 1 after an exception: any other code adds information.
    return exception if return_code == 1 else f"{exception} (exit code {return_code})"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
