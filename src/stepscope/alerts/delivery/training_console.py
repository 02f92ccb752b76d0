"""Writes into the standard error of a training that runs on this machine."""

from __future__ import annotations

import os
import shutil
import stat
import textwrap
from contextlib import suppress
from typing import TYPE_CHECKING

from stepscope.procfs import PROC

if TYPE_CHECKING:
    from pathlib import Path
    from typing import TextIO


def open_console(pid: int, proc: Path = PROC) -> TextIO | None:
    """Opens the standard error of a training; None if it cannot be written without harm."""
    process = proc / str(pid)
    # O_NONBLOCK: does not wait for the reader of a pipe.
    flags = os.O_WRONLY | os.O_APPEND | os.O_NOCTTY | os.O_NONBLOCK
    try:
        file = os.open(process / "fd" / "2", flags)
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(file).st_mode) and not _appends(process):
        os.close(file)  # the training writes to the file at its own position and would overwrite ours
        return None
    return os.fdopen(file, "w", encoding="utf-8", errors="replace")


def wrapped(line: str, stream: TextIO) -> list[str]:
    """Wraps a line to the width of a terminal; text for a pipe is not changed."""
    if not line or not stream.isatty():
        return [line]
    indent = line[: len(line) - len(line.lstrip())]
    columns = shutil.get_terminal_size().columns
    with suppress(OSError):  # it is not a terminal after all
        # The terminal of the training: the agent has none.
        columns = os.get_terminal_size(stream.fileno()).columns or columns
    return textwrap.wrap(
        line,
        max(columns, 20),
        subsequent_indent=f"{indent}  ",
        break_on_hyphens=False,
        break_long_words=False,  # links must stay whole
    )


def painted(text: str, colour: str, stream: TextIO) -> str:
    """Colours a text if the stream is a terminal that shows colours."""
    shows_colour = stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return f"\x1b[{colour}m{text}\x1b[0m" if shows_colour else text


def _appends(process: Path) -> bool:
    """Whether a process writes its standard error at the end of the file, as after `2>>` or in Slurm."""
    with suppress(OSError, ValueError, IndexError):
        flags = (process / "fdinfo" / "2").read_text().partition("flags:")[2].split()[0]
        return bool(int(flags, 8) & os.O_APPEND)
    return False
