"""Tells by adding a line of JSON to a file, which is followed by another when it is full."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.alerts.delivery import message
from stepscope.alerts.delivery.channel_options import Options
from stepscope.channels.base import Channel, DeliveryError

if TYPE_CHECKING:
    from stepscope.schema.alert import Notice

MIB = 1024 * 1024


class LogFileChannel(Channel):
    """Adds each notice to a file, one JSON object a line.

    Options: `path`, needed; `max_bytes`, after which the file is renamed to `<path>.1` and a new one begun;
    `keep`, how many renamed ones are kept.
    """

    def __init__(
        self, *, path: str = "", max_bytes: int = 10 * MIB, keep: int = 5, _directory: Path = Path()
    ) -> None:
        options = Options("log_file", "log_file: {path: ~/stepscope-alerts.jsonl}")
        self._path = _directory / Path(options.text("path", path)).expanduser()
        self._max_bytes = options.whole("max_bytes", max_bytes, 1024, 2**40)
        self._keep = options.whole("keep", keep, 0, 1000)

    @property
    def target(self) -> str:
        """The file."""
        return str(self._path)

    def send(self, notice: Notice) -> None:
        """Adds a line; the folder is made where there is none."""
        line = json.dumps(message.fields(notice), allow_nan=False).encode() + b"\n"
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if self._is_full(len(line)):
                self._rotate()
            with self._path.open("ab") as file:
                file.write(_end_of_torn_line(self._path) + line)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise DeliveryError(f"{self._path} cannot be written: {reason}.") from error

    def _is_full(self, more: int) -> bool:
        return self._path.exists() and 0 < self._path.stat().st_size > self._max_bytes - more

    def _rotate(self) -> None:
        for number in range(self._keep, 0, -1):
            older = self._numbered(number)
            younger = self._numbered(number - 1) if number > 1 else self._path
            if younger.exists():
                younger.replace(older)
        if self._keep == 0:
            self._path.unlink()

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")


def _end_of_torn_line(path: Path) -> bytes:
    """A line break where a writer was stopped within a line, so that the next begins a line of its own."""
    with path.open("rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return b""
        file.seek(-1, os.SEEK_END)
        return b"" if file.read(1) == b"\n" else b"\n"
