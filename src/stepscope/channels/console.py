"""Writes alerts to the standard error of the training, in colour if it is a terminal."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING

from stepscope.alerts.delivery import message
from stepscope.alerts.delivery.training_console import open_console, painted, wrapped
from stepscope.channels.base import Channel, DeliveryError
from stepscope.procfs import PROC

if TYPE_CHECKING:
    from pathlib import Path
    from typing import TextIO

    from stepscope.schema.alert import Notice

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
        if self._stream is not None or notice.pid is None:
            return None
        return open_console(notice.pid, self._proc)


def _formatted(notice: Notice, stream: TextIO) -> str:
    first, *others = [part for line in message.text(notice).split("\n") for part in wrapped(line, stream)]
    rest = "\n".join(others)
    colour = RESOLVED if notice.kind == "resolved" else COLOURS[notice.severity]
    encoding = stream.encoding or "utf-8"
    return f"{painted(first, colour, stream)}\n{rest}\n".encode(encoding, "replace").decode(encoding)
