"""Writes alerts to the standard error of the training, in colour if it is a terminal."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import textwrap
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.alerts.delivery import message
from stepscope.channels.base import Channel, DeliveryError

if TYPE_CHECKING:
    from typing import TextIO

    from stepscope.schema.alert import Notice

PROC = Path("/proc")
COLOURS = {"critical": "1;31", "warning": "33", "info": "36"}
RESOLVED = "32"


class ConsoleChannel(Channel):
    """Writes each notice to standard error. It has no options.

    It uses the standard error of the training while that runs on this machine: the agent's own is a log file
    that few people read.
    """

    def __init__(self, *, _stream: TextIO | None = None, _proc: Path = PROC) -> None:
        self._stream, self._proc = _stream, _proc

    @property
    def target(self) -> str:
        """The name of the stream."""
        return "standard error"

    def send(self, notice: Notice) -> None:
        """Writes the text of a notice with its first line in colour, and an empty line after it."""
        try:
            with self._training_console(notice) or nullcontext(self._stream or sys.stderr) as stream:
                if stream is None:
                    raise DeliveryError("This process has no standard error to write to.", is_final=True)
                stream.write(_formatted(notice, stream))
                stream.flush()
        except (OSError, ValueError) as error:  # ValueError: the stream is closed
            raise DeliveryError(f"Standard error cannot be written to: {error}.") from error

    def _training_console(self, notice: Notice) -> TextIO | None:
        """Opens the standard error of the training; returns None if that is not possible."""
        if self._stream is not None or notice.pid is None:
            return None
        process = self._proc / str(notice.pid)
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


def _appends(process: Path) -> bool:
    """Whether a process writes its standard error at the end of the file, as after `2>>` or in Slurm."""
    with suppress(OSError, ValueError, IndexError):
        flags = (process / "fdinfo" / "2").read_text().partition("flags:")[2].split()[0]
        return bool(int(flags, 8) & os.O_APPEND)
    return False


def _formatted(notice: Notice, stream: TextIO) -> str:
    first, *others = [part for line in message.text(notice).split("\n") for part in _wrapped(line, stream)]
    rest = "\n".join(others)
    if _shows_colour(stream):
        colour = RESOLVED if notice.kind == "resolved" else COLOURS[notice.severity]
        first = f"\x1b[{colour}m{first}\x1b[0m"
    encoding = stream.encoding or "utf-8"
    return f"{first}\n{rest}\n".encode(encoding, "replace").decode(encoding)


def _wrapped(line: str, stream: TextIO) -> list[str]:
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


def _shows_colour(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
