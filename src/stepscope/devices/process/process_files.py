"""Reads the small files of processes in `/proc`, and keeps files open that are read repeatedly."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.devices.host.kernel_files import PROC, read_text

if TYPE_CHECKING:
    from collections.abc import Collection

MAX_OPEN = 256
"""Further files are opened and closed at each reading: the limit of a process is often 1,024."""

_MAX_BYTES = 1 << 16


class ProcessFiles:
    """The files of some processes. Reading an open file takes a third of the time of opening it.

    An open file always belongs to its process: after that has ended it cannot be read, and never shows
    another process with the same number.
    """

    def __init__(self, proc: str | Path = PROC, max_open: int = MAX_OPEN) -> None:
        self._proc = str(proc)
        # A file of any other folder outlives its process: only the kernel's own files end with it.
        self._max_open = max_open if Path(proc) == PROC else 0
        self._open: dict[tuple[int, str], int] = {}

    def read(self, pid: int, name: str) -> str | None:
        """Reads a file; None where it is missing or forbidden, or its process has ended."""
        file = self._open.get((pid, name))
        if file is None:
            if len(self._open) >= self._max_open:
                return read_text(f"{self._proc}/{pid}/{name}")
            try:
                file = os.open(f"{self._proc}/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                return None
            self._open[pid, name] = file
        try:
            return os.pread(file, _MAX_BYTES, 0).decode(errors="replace")
        except OSError:
            os.close(self._open.pop((pid, name)))
            return None

    def keep_only(self, pids: Collection[int]) -> None:
        """Closes the files of all other processes."""
        for file_key in [file_key for file_key in self._open if file_key[0] not in pids]:
            os.close(self._open.pop(file_key))

    def close(self) -> None:
        """Closes all files."""
        self.keep_only(())
