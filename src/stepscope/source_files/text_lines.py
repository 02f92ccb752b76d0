"""Reads text files line by line, with bounded memory."""

from __future__ import annotations

import io
import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from typing import TYPE_CHECKING, BinaryIO

from stepscope.errors import SourceError
from stepscope.source_files.source_folder import damaged, open_source

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_LINE_CHARACTERS = 16 << 20
HEAD_BYTES = 1 << 12
_NOT_DECODED = re.compile("[\udc80-\udcff]")
"""A byte that is not UTF-8, as Python's error handler `surrogateescape` keeps it."""


def lines_of(path: Path) -> Iterator[tuple[int, str, bool]]:
    """The lines of a file with their numbers, and whether each is complete: the last may lack its end.

    Lines end as on Linux, Windows or old Macs. A file in UTF-16, as Excel writes it, has a mark at its start.
    """
    with open_source(path) as file:
        encoding = _encoding_of(file, path)
        text = io.TextIOWrapper(file, encoding, errors="surrogateescape", newline="")
        number = 0
        while line := _next_line(text, path, number + 1):
            number += 1
            if len(line) > MAX_LINE_CHARACTERS:
                raise damaged(path, f"line {number}", f"it is longer than {MAX_LINE_CHARACTERS >> 20} MiB")
            wrong = None if line.isascii() else _NOT_DECODED.search(line)
            if wrong is not None:
                at = len(line[: wrong.start()].encode())
                raise damaged(path, f"line {number}", f"byte {at} is not UTF-8")
            yield number, line, line.endswith(("\n", "\r"))


def _next_line(text: io.TextIOWrapper, path: Path, number: int) -> str:
    try:
        return text.readline(MAX_LINE_CHARACTERS + 1)
    except UnicodeError as error:
        raise damaged(path, f"line {number} or after it", "it is not UTF-16, as its start says") from error


def _encoding_of(file: BinaryIO, path: Path) -> str:
    head = file.read(HEAD_BYTES)
    file.seek(0)
    if head.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        return "utf-16"
    if b"\0" in head:
        raise SourceError(
            f"{path} is not a text in UTF-8: byte {head.index(0):,} is a zero byte. Save it as UTF-8; where "
            "`stepscope export` wrote it and a key has that byte, export it again with --format jsonl."
        )
    return "utf-8-sig" if head.startswith(BOM_UTF8) else "utf-8"


def modified_ns(path: Path) -> int:
    """When a file was last written."""
    return path.stat().st_mtime_ns
