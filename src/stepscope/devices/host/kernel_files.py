"""Reads the small text files in which Linux tells about itself; one that is not there reads as None."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

Value = TypeVar("Value")

PROC = Path("/proc")
SYS = Path("/sys")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

_READ_BYTES = 1 << 16


def read_text(path: str | os.PathLike[str]) -> str | None:
    """All of a file; None where it is missing, forbidden, or gone in the middle of it.

    A third of what `Path.read_text` costs, which counts: dozens of files are read every second.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        pieces = [piece := os.read(file, _READ_BYTES)]
        while piece:
            pieces.append(piece := os.read(file, _READ_BYTES))
    except OSError:  # a process that has just ended, a device that was unplugged
        return None
    finally:
        os.close(file)
    return b"".join(pieces).decode(errors="replace")


def read_word(path: str | os.PathLike[str]) -> str | None:
    """What a file of one line says; None where it says nothing."""
    text = read_text(path)
    return (text.strip() or None) if text is not None else None


def read_number(path: str | os.PathLike[str]) -> int | None:
    """The whole number a file holds; None where it holds something else, such as `max`."""
    text = read_text(path)
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def named_numbers(text: str | None) -> dict[str, int]:
    """The numbers of lines such as `pgmajfault 62186` or `MemTotal: 24684100 kB`, by their names."""
    numbers = {}
    for line in (text or "").splitlines():
        words = line.split(None, 2)
        if len(words) > 1 and words[1].isdecimal():
            numbers[words[0].rstrip(":")] = int(words[1])
    return numbers


def number_named(text: str, name: str) -> int | None:
    """One number of such a text, without taking the whole of it apart."""
    start = f"\n{text}".find(f"\n{name} ")
    if start < 0:
        return None
    words = text[start : start + 200].split(None, 2)
    return int(words[1]) if len(words) > 1 and words[1].isdecimal() else None


def list_names(folder: str | os.PathLike[str]) -> list[str]:
    """The names in a folder, in order; none where it cannot be read."""
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 - names are all that is wanted
    except OSError:
        return []


def drop_none(fields: Mapping[str, Value | None]) -> dict[str, Value]:
    """Those fields the system has a value for."""
    return {name: value for name, value in fields.items() if value is not None}
