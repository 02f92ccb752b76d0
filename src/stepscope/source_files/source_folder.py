"""Finds and opens files of a folder without leaving it: links that lead out of it are not followed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NoReturn

from stepscope.errors import SourceError
from stepscope.filesystem import open_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAX_ENTRIES = 1_000_000
"""The most files and folders that are looked at; a source has far fewer."""


def files_in(folder: Path, has_kind: Callable[[str], bool]) -> Iterator[Path]:
    """The files of a folder and its subfolders whose names are of a kind, in the order of their paths."""
    if not folder.is_dir():
        return
    root = folder.resolve()
    seen = 0
    for place, folders, names in os.walk(folder, onerror=_raise):
        folders.sort()
        seen += len(folders) + len(names)
        if seen > MAX_ENTRIES:
            raise SourceError(
                f"{folder} has more than {MAX_ENTRIES:,} files. Give a folder with only the runs to import."
            )
        for name in sorted(filter(has_kind, names)):
            path = Path(place, name)
            if not path.is_symlink() or path.resolve().is_relative_to(root):
                yield path


def _raise(error: OSError) -> NoReturn:
    raise error


def open_source(path: Path) -> BinaryIO:
    """Opens a file for reading; raises SourceError for one that is missing, forbidden or not a file."""
    try:
        return os.fdopen(open_regular(path, os.O_RDONLY), "rb")
    except OSError as error:
        raise SourceError(
            f"{path} cannot be read: {error.strerror}. Check the path and who may read it."
        ) from error


def damaged(path: Path | str, place: str, what: object) -> SourceError:
    """The error for a damaged file."""
    return SourceError(
        f"{path} is damaged at {place}: {what}. Nothing of it was imported. Copy it again, or repair it."
    )
