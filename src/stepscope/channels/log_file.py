"""Appends alerts to a file as lines of JSON, with rotation."""

from __future__ import annotations

import json
import os
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.alerts.delivery import message
from stepscope.alerts.delivery.channel_options import Options
from stepscope.channels.base import Channel, DeliveryError

if TYPE_CHECKING:
    from stepscope.schema.alert import Notice

MIB = 1024 * 1024


class LogFileChannel(Channel):
    """Appends each notice to a file, one JSON object per line.

    Options: `path` (required); `max_bytes`, the size at which the file is renamed to `<path>.1` and a new one
    started; `keep`, how many renamed files are kept. `RotatingFileHandler` does the renaming only: it would
    not complete a torn line, and would print errors instead of raising them.
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
        """The path of the file."""
        return str(self._path)

    def send(self, notice: Notice) -> None:
        """Appends a line; creates the folder if necessary."""
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
        if self._keep == 0:
            self._path.unlink()
        else:
            RotatingFileHandler(self._path, backupCount=self._keep, delay=True).doRollover()


def _end_of_torn_line(path: Path) -> bytes:
    """Returns a line break if the last line is incomplete, so that the next notice starts a new line."""
    with path.open("rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return b""
        file.seek(-1, os.SEEK_END)
        return b"" if file.read(1) == b"\n" else b"\n"
