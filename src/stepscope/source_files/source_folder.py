"""Finds and opens files of a folder without leaving it: links that lead out of it are not followed."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NoReturn
from urllib.parse import unquote, urlparse

from stepscope.errors import SourceError
from stepscope.filesystem import open_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAX_ENTRIES = 1_000_000
"""The most files and folders that are looked at; a source has far fewer."""


def without_scheme(place: str) -> str:
    """The path in `sqlite:///path` and `file:///path`; any other path or address as it is."""
    scheme, separator, path = place.partition("://")
    if separator and scheme == "sqlite":
        return unquote(path.removeprefix("/"))
    return unquote(urlparse(place).path) if separator and scheme == "file" else place


def files_in(folder: Path, has_kind: Callable[[str], bool]) -> Iterator[Path]:
    """The files of a folder and its subfolders whose names are of a kind, in the order of their paths."""
    if not folder.is_dir():
        return
    root = folder.resolve()
    entries = 0
    for place, folders, names in os.walk(folder, onerror=_raise):
        folders.sort()
        entries += len(folders) + len(names)
        if entries > MAX_ENTRIES:
            raise SourceError(
                f"{folder} has more than {MAX_ENTRIES:,} files. Give a folder with only the runs to import."
            )
        for name in sorted(filter(has_kind, names)):
            path = Path(place, name)
            if not path.is_symlink() or _target(path).is_relative_to(root):
                yield path


def links_out_of(folder: Path) -> list[Path]:
    """The links in a folder and its subfolders that lead out of it, which are not followed."""
    root = folder.resolve()
    links = [
        Path(place, name)
        for place, folders, names in os.walk(folder)
        for name in (*folders, *names)
        if Path(place, name).is_symlink()
    ]
    return sorted(link for link in links if not _target(link).is_relative_to(root))


def _target(link: Path) -> Path:
    """Where a link leads; unlike `Path.resolve`, this raises nothing for links that lead to each other."""
    return Path(os.path.realpath(link))


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
        f"{path} is damaged at {place}: {_plain(what)}. Nothing of it was imported. Copy it again, or "
        "repair it."
    )


def _plain(what: object) -> object:
    """What is wrong, in words that do not need Python."""
    if isinstance(what, UnicodeDecodeError):
        return f"byte {what.start} of a text is not UTF-8"
    if isinstance(what, struct.error):
        return "a number with too few or too many bytes"
    return "a number that is too large" if isinstance(what, OverflowError) else what
