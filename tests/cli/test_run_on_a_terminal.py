"""`stepscope run` on a terminal: the command has a terminal too, and keys reach it once."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from stepscope.reading import Run

# Makes the terminal the controlling one, as a shell's is, and becomes the command behind it.
TAKES_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""

LOOKS_AROUND = """
import os, sys
print("terminal", *(os.isatty(n) for n in (0, 1, 2)), *os.get_terminal_size(1))
for share in (0, 50, 100):
    sys.stderr.write(f"\\r{share}%")
sys.stderr.write("\\n")
"""
# Busy while it waits: two signals in a row would count as one in a process that is being woken up.
COUNTS_INTERRUPTS = """
import signal, time
seen = []
signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
for number in range(30):
    print("press", number, flush=True)
    while len(seen) <= number:
        pass
time.sleep(0.3)
print("interrupts", len(seen), flush=True)
"""
FOLLOWS_SIZE = """
import os, signal, time
told = []
signal.signal(signal.SIGWINCH, lambda number, frame: told.append(number))
print("ready", flush=True)
while not told or os.get_terminal_size(1) != (77, 22):
    time.sleep(0.01)
print("resized", flush=True)
"""


class Terminal:
    """A terminal with a person in front of it."""

    def __init__(self, folder: Path) -> None:
        self.person, self._far_end = pty.openpty()
        self.resize(rows=33, columns=101)
        self._folder = folder
        self.shown = b""

    def run(self, code: str) -> subprocess.Popen[bytes]:
        command = [
            sys.executable,
            "-m",
            "stepscope",
            "run",
            "--name",
            "typed",
            "--",
            sys.executable,
            "-c",
            code,
        ]
        process = subprocess.Popen(
            [sys.executable, "-c", TAKES_TERMINAL, *command[1:]],
            stdin=self._far_end,
            stdout=self._far_end,
            stderr=self._far_end,
            env={**os.environ, "STEPSCOPE_DIR": str(self._folder)},
            start_new_session=True,
        )
        os.close(self._far_end)
        return process

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.person, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read_until(self, expected: bytes, seconds: float = 20.0) -> None:
        deadline = time.monotonic() + seconds
        while expected not in self.shown:
            ready, _, _ = select.select([self.person], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, self.shown
            self.shown += os.read(self.person, 65536)


@pytest.fixture
def terminal(folder: Path) -> Iterator[Terminal]:
    opened = Terminal(folder)
    yield opened
    os.close(opened.person)


@pytest.mark.slow
def test_the_command_has_a_terminal_of_the_same_size_and_its_bytes_are_unchanged(
    terminal: Terminal, read: Callable[[str], Run]
) -> None:
    process = terminal.run(LOOKS_AROUND)
    terminal.read_until(b"100%\r\n")
    assert process.wait(timeout=120) == 0
    assert re.search(rb"terminal True True True 101 33\r\n\r0%\r50%\r100%\r\n$", terminal.shown)
    assert b"\r\r\n" not in terminal.shown
    console = read("typed").events("console")[-1].fields["text"]
    assert console == "terminal True True True 101 33\n100%"


@pytest.mark.slow
def test_an_interrupt_from_the_keyboard_reaches_the_command_once(terminal: Terminal) -> None:
    process = terminal.run(COUNTS_INTERRUPTS)
    for number in range(30):
        terminal.read_until(b"press %d" % number)
        os.write(terminal.person, b"\x03")
    terminal.read_until(b"interrupts 30")
    assert process.wait(timeout=120) == 0


def test_a_new_size_of_the_window_reaches_the_command(terminal: Terminal) -> None:
    process = terminal.run(FOLLOWS_SIZE)
    terminal.read_until(b"ready")
    terminal.resize(rows=22, columns=77)
    terminal.read_until(b"resized")
    assert process.wait(timeout=120) == 0
