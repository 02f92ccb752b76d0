"""Reads the small text files of `/proc` and `/sys`; a missing file reads as None.

psutil would take 1.1 to 5 times the processor time for what is read of the host every second, and 2 to 11
times for a process (`python -m benchmarks.proc_reads`), where the agent may take 1% of a core in all. It also
lacks the run queue, major faults, unwritten pages and mounted folders, and takes 25 ms to import.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

Value = TypeVar("Value")

SYS = Path("/sys")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

_READ_BYTES = 1 << 16


def read_text(path: str | os.PathLike[str]) -> str | None:
    """Reads a file; None where it is missing, forbidden, or removed during the read.

    Costs a third of `Path.read_text`, which matters: dozens of files are read every second.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        pieces = [piece := os.read(file, _READ_BYTES)]
        while piece:
            pieces.append(piece := os.read(file, _READ_BYTES))
    except OSError:  # the process has just ended, or the device was unplugged
        return None
    finally:
        os.close(file)
    return b"".join(pieces).decode(errors="replace")


def read_word(path: str | os.PathLike[str]) -> str | None:
    """The stripped text of a file; None where it is empty."""
    text = read_text(path)
    return (text.strip() or None) if text is not None else None


def read_number(path: str | os.PathLike[str]) -> int | None:
    """The integer in a file; None for other contents, such as `max`."""
    text = read_text(path)
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def named_numbers(text: str | None) -> dict[str, int]:
    """The numbers of lines such as `pgmajfault 62186` or `MemTotal: 24684100 kB`, by name."""
    numbers = {}
    for line in (text or "").splitlines():
        words = line.split(None, 2)
        if len(words) > 1 and words[1].isdecimal():
            numbers[words[0].rstrip(":")] = int(words[1])
    return numbers


def number_named(text: str, name: str) -> int | None:
    """One number of such a text, without parsing all of it."""
    start = f"\n{text}".find(f"\n{name} ")
    if start < 0:
        return None
    words = text[start : start + 200].split(None, 2)
    return int(words[1]) if len(words) > 1 and words[1].isdecimal() else None


def list_names(folder: str | os.PathLike[str]) -> list[str]:
    """The sorted names in a folder; empty where it cannot be read."""
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 - only names are needed
    except OSError:
        return []


def drop_none(fields: Mapping[str, Value | None]) -> dict[str, Value]:
    """The fields without those that are None."""
    return {name: value for name, value in fields.items() if value is not None}
