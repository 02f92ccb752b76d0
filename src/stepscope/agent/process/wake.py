"""Wakes a sleeping agent through a named pipe; standard library only."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from stepscope.descriptors import HeldDescriptor, open_above_streams
from stepscope.filesystem import share

if TYPE_CHECKING:
    from pathlib import Path

WAKE_NAME = "agent.wake"


def wake(folder: Path) -> None:
    """Asks the agent of a folder to run a round now rather than at its next tick."""
    with contextlib.suppress(OSError):
        descriptor = open_above_streams(folder / WAKE_NAME, os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(descriptor, b"\1")
        finally:
            os.close(descriptor)


def open_wake(folder: Path) -> HeldDescriptor | None:
    """Opens the agent's end of the pipe; None where there can be no pipe."""
    path = folder / WAKE_NAME
    try:
        if not path.is_fifo():
            os.mkfifo(path, 0o600)
            share(path, folder)
        # Opened for writing too: a pipe whose last writer has closed it is always readable.
        # Its number stays low: select() accepts none above 1,023.
        return HeldDescriptor(open_above_streams(path, os.O_RDWR | os.O_NONBLOCK))
    except OSError:  # a file system without pipes: the agent runs at its interval
        return None
