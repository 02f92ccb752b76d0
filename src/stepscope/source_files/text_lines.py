"""Reads text files line by line, with bounded memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepscope.source_files.source_folder import damaged, open_source

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_LINE_BYTES = 16 << 20


def lines_of(path: Path) -> Iterator[tuple[int, str, bool]]:
    """The lines of a file with their numbers, and whether each is complete: the last may lack its end."""
    with open_source(path) as file:
        number = 0
        while raw := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(raw) > MAX_LINE_BYTES:
                raise damaged(path, f"line {number}", f"it is longer than {MAX_LINE_BYTES >> 20} MiB")
            try:
                text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise damaged(path, f"line {number}", f"byte {error.start} is not UTF-8") from error
            yield number, text, text.endswith(("\n", "\r"))


def modified_ns(path: Path) -> int:
    """When a file was last written."""
    return path.stat().st_mtime_ns
