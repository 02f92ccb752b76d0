"""Passes signals on to a command, so that whoever stops the launcher stops the command."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

PASSED_ON = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
)
FROM_KEYBOARD = (signal.SIGINT, signal.SIGQUIT)
TERMINAL = "/dev/tty"


class Signals:
    """Catches signals until the command has ended; one that is ignored here stays ignored there."""

    def __init__(self, resize: Callable[[], None]) -> None:
        self._resize = resize
        self._command: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []
        caught = [number for number in PASSED_ON if signal.getsignal(number) is not signal.SIG_IGN]
        self._previous = {number: signal.signal(number, self._on_signal) for number in caught}

    def pass_on_to(self, command: subprocess.Popen[bytes]) -> None:
        """Names the command; it gets what has come before it began too."""
        self._command = command
        for number in self._early:
            command.send_signal(number)

    def restore(self) -> None:
        """Gives the signals their former meaning."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, _frame: Any) -> None:
        if number == signal.SIGWINCH:
            self._resize()
        if self._command is None:
            self._early.append(number)
        elif number not in FROM_KEYBOARD or not _has_keyboard():
            self._command.send_signal(number)


def _has_keyboard() -> bool:
    """Whether keys such as Ctrl-C reach our process group, and with it the command, by themselves."""
    with contextlib.suppress(OSError):
        terminal = os.open(TERMINAL, os.O_RDONLY | os.O_NOCTTY)
        try:
            return os.tcgetpgrp(terminal) == os.getpgrp()
        finally:
            os.close(terminal)
    return False
