"""Passes what a command prints on to our own console, byte for byte and at once."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import termios
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepscope.launcher.console import ConsoleTail

STDOUT, STDERR = 1, 2
READ_BYTES = 1 << 16
LINGER_S = 0.2
"""How long a stream may be silent after the command's end before it counts as over."""

_OUTPUT_FLAGS, _LOCAL_FLAGS = 1, 3
_SIZE_BYTES = 8


class OutputForwarder:
    """The two streams between a command and us.

    A stream of ours that is a terminal is one for the command too, so that progress bars and colours stay;
    any other is a pipe, and the two are kept apart.
    """

    def __init__(self, tail: ConsoleTail) -> None:
        self._tail = tail
        self._terminals: tuple[int, int] | None = None
        self._threads: list[threading.Thread] = []
        self._ended, self._tell_ended = os.pipe()
        self._child_ends: dict[int, int] = {}
        self._sources: dict[int, int] = {}
        terminals = [stream for stream in (STDOUT, STDERR) if os.isatty(stream)]
        if terminals:
            source, child_end = _terminal_like(terminals[0])
            self._terminals = terminals[0], source
            self._sources[terminals[0]] = source
            self._child_ends = dict.fromkeys(terminals, child_end)
        for stream in {STDOUT, STDERR}.difference(terminals):
            self._sources[stream], self._child_ends[stream] = os.pipe()

    @property
    def stdout(self) -> int:
        """What the command is to write its standard output to."""
        return self._child_ends[STDOUT]

    @property
    def stderr(self) -> int:
        """What the command is to write its standard error to."""
        return self._child_ends[STDERR]

    def open(self) -> None:
        """Begins to pass on, once the command holds its own ends."""
        for descriptor in set(self._child_ends.values()):
            os.close(descriptor)
        for target, source in self._sources.items():
            name = "stdout" if target == STDOUT else "stderr"
            thread = threading.Thread(target=self._pass_on, args=(source, target, name), daemon=True)
            thread.start()
            self._threads.append(thread)

    def close(self) -> None:
        """Passes on what is still under way; a process the command left behind is not waited for."""
        os.close(self._tell_ended)
        for thread in self._threads:
            thread.join()
        os.close(self._ended)

    def resize(self) -> None:
        """Gives the command's terminal the size of ours."""
        if self._terminals is not None:
            with contextlib.suppress(OSError):
                _copy_size(*self._terminals)

    def _pass_on(self, source: int, target: int, name: str) -> None:
        with contextlib.suppress(OSError):  # the reader of our output has left: so does the command's
            while data := self._next(source):
                _write_all(target, data)
                self._tail.add(name, data)
        os.close(source)

    def _next(self, source: int) -> bytes:
        """What was printed next; nothing at the end."""
        ready, _, _ = select.select([source, self._ended], [], [])
        if source not in ready:
            ready, _, _ = select.select([source], [], [], LINGER_S)
        return os.read(source, READ_BYTES) if source in ready else b""


def _terminal_like(model: int) -> tuple[int, int]:
    """A pseudo-terminal that looks like one of ours and changes no byte: ours does that."""
    ours, child_end = pty.openpty()
    modes = termios.tcgetattr(model)
    modes[_OUTPUT_FLAGS] &= ~termios.OPOST
    modes[_LOCAL_FLAGS] &= ~termios.ECHO
    termios.tcsetattr(child_end, termios.TCSANOW, modes)
    _copy_size(model, child_end)
    return ours, child_end


def _copy_size(model: int, other: int) -> None:
    fcntl.ioctl(other, termios.TIOCSWINSZ, fcntl.ioctl(model, termios.TIOCGWINSZ, bytes(_SIZE_BYTES)))


def _write_all(target: int, data: bytes) -> None:
    remaining = memoryview(data)
    while remaining:
        try:
            remaining = remaining[os.write(target, remaining) :]
        except BlockingIOError:  # somebody who shares our console made it so
            select.select([], [target], [])
