"""Forwards signals to a command, so that stopping the launcher stops the command."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

FORWARDED = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
)
KEYBOARD_SIGNALS = (signal.SIGINT, signal.SIGQUIT)
TERMINAL = "/dev/tty"


class Signals:
    """Handles signals until the command has ended; a signal that is ignored here stays ignored there."""

    def __init__(self, resize: Callable[[], None]) -> None:
        self._resize = resize
        self._command: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []
        caught = [number for number in FORWARDED if signal.getsignal(number) is not signal.SIG_IGN]
        self._previous = {number: signal.signal(number, self._on_signal) for number in caught}

    def pass_on_to(self, command: subprocess.Popen[bytes]) -> None:
        """Sets the command, and forwards signals that arrived before it was started."""
        self._command = command
        for number in self._early:
            command.send_signal(number)

    def restore(self) -> None:
        """Restores the previous signal handlers."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, _frame: Any) -> None:
        if number == signal.SIGWINCH:
            self._resize()
        if self._command is None:
            self._early.append(number)
        elif number not in KEYBOARD_SIGNALS or not _has_keyboard():
            self._command.send_signal(number)


def _has_keyboard() -> bool:
    """Whether the terminal sends Ctrl-C to this process group, and so directly to the command."""
    with contextlib.suppress(OSError):
        terminal = os.open(TERMINAL, os.O_RDONLY | os.O_NOCTTY)
        try:
            return os.tcgetpgrp(terminal) == os.getpgrp()
        finally:
            os.close(terminal)
    return False
