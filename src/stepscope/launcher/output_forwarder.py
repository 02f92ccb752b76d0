"""Forwards the output of a command to this process's console, unchanged and without delay.

It knows terminals and pipes only: what is recorded of a command changes without it.
"""

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
    from stepscope.launcher.console_tail import ConsoleTail

STDOUT, STDERR = 1, 2
READ_BYTES = 1 << 16
MAX_SILENCE_S = 0.2
"""Maximum silence of a stream after the command's end before it is closed."""

_OUTPUT_FLAGS, _LOCAL_FLAGS = 1, 3
_SIZE_BYTES = 8


class OutputForwarder:
    """The output streams of a command.

    If a stream of this process is a terminal, the command gets a terminal, too, so that progress bars and
    colours are kept; otherwise it gets a pipe. Standard output and error stay separate.
    """

    def __init__(self, tail: ConsoleTail) -> None:
        self._tail = tail
        self._terminals: tuple[int, int] | None = None
        self._threads: list[threading.Thread] = []
        self._ended, self._end_signal = os.pipe()
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
        """The descriptor for the command's standard output."""
        return self._child_ends[STDOUT]

    @property
    def stderr(self) -> int:
        """The descriptor for the command's standard error."""
        return self._child_ends[STDERR]

    def open(self) -> None:
        """Starts forwarding, after the command has been started."""
        for descriptor in set(self._child_ends.values()):
            os.close(descriptor)
        for target, source in self._sources.items():
            name = "stdout" if target == STDOUT else "stderr"
            thread = threading.Thread(target=self._forward, args=(source, target, name), daemon=True)
            thread.start()
            self._threads.append(thread)

    def close(self) -> None:
        """Forwards the remaining output; does not wait for processes the command has left running."""
        os.close(self._end_signal)
        for thread in self._threads:
            thread.join()
        os.close(self._ended)

    def resize(self) -> None:
        """Sets the size of the command's terminal to that of this process."""
        if self._terminals is not None:
            with contextlib.suppress(OSError):
                _copy_size(*self._terminals)

    def _forward(self, source: int, target: int, name: str) -> None:
        with contextlib.suppress(OSError):  # the reader of this output has closed it
            while data := self._next(source):
                _write_all(target, data)
                self._tail.add(name, data)
        os.close(source)

    def _next(self, source: int) -> bytes:
        """The next output; empty at the end."""
        ready, _, _ = select.select([source, self._ended], [], [])
        if source not in ready:
            ready, _, _ = select.select([source], [], [], MAX_SILENCE_S)
        return os.read(source, READ_BYTES) if source in ready else b""


def _terminal_like(model: int) -> tuple[int, int]:
    """A pseudo-terminal with the settings of a real one, which does the output processing for it."""
    source, child_end = pty.openpty()
    modes = termios.tcgetattr(model)
    modes[_OUTPUT_FLAGS] &= ~termios.OPOST
    modes[_LOCAL_FLAGS] &= ~termios.ECHO
    termios.tcsetattr(child_end, termios.TCSANOW, modes)
    _copy_size(model, child_end)
    return source, child_end


def _copy_size(model: int, other: int) -> None:
    fcntl.ioctl(other, termios.TIOCSWINSZ, fcntl.ioctl(model, termios.TIOCGWINSZ, bytes(_SIZE_BYTES)))


def _write_all(target: int, data: bytes) -> None:
    remaining = memoryview(data)
    while remaining:
        try:
            remaining = remaining[os.write(target, remaining) :]
        except BlockingIOError:  # another process has made the shared console non-blocking
            select.select([], [target], [])
